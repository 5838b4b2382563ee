-- Tells whether a key meets a listing's conditions, of which '' is always met.
-- `enabled` '1' | '0'; `prefix` of the name; `part` of the name, the id or the external id, A–Z in lower case
local function matches(condition, keyId, enabled, name, externalId)
  return (condition.enabled == '' or enabled == condition.enabled)
    and string.sub(name, 1, #condition.prefix) == condition.prefix
    and string.find(string.lower(name .. '\n' .. keyId .. '\n' .. externalId), condition.part, 1, true)
end

-- Returns the conditions; nil if all keys meet them.
local function conditionOf(enabled, prefix, part)
  if enabled == '' and prefix == '' and part == '' then return nil end
  return {enabled = enabled, prefix = prefix, part = string.lower(part)}
end
