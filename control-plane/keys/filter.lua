-- Returns a text in the form in which it is searched. `forms` of characters, as they may be written → as they are searched;
-- nil = only A–Z
local function fold(text, forms)
  text = string.lower(text)
  if not forms or not string.find(text, '[\128-\255]') then return text end
  text = string.gsub(text, '[\194-\244][\128-\191]+', forms)
  -- A character and a mark behind it (U+0300 to U+037F). It may have several.
  for _ = 1, 3 do text = string.gsub(text, '[%w\194-\244][\128-\191]*[\204\205][\128-\191]', forms) end
  return text
end

-- Tells whether a key meets a listing's conditions, of which '' is always met.
-- `enabled` '1' | '0'; `prefix` of the name; `part` of the name, the id or the external id, folded
local function matches(condition, keyId, enabled, name, externalId)
  return (condition.enabled == '' or enabled == condition.enabled)
    and string.sub(name, 1, #condition.prefix) == condition.prefix
    and string.find(fold(name .. '\n' .. keyId .. '\n' .. externalId, condition.forms), condition.part, 1, true)
end

-- Returns the conditions; nil if all keys meet them. `forms` JSON, '' = none
local function conditionOf(enabled, prefix, part, forms)
  if enabled == '' and prefix == '' and part == '' then return nil end
  return {enabled = enabled, prefix = prefix, part = part, forms = forms ~= '' and cjson.decode(forms) or nil}
end
