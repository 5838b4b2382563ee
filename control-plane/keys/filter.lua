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

-- Tells whether a key meets the conditions of a listing, an object of which any field may be absent: `enabled` '1' | '0';
-- `prefix` of the name; `part` of the name, the id or the external id, folded, with its `forms`; `expiredAt` and
-- `unexpiredAt`: at this time it has expired, or has not; `expiresBefore`; `role`: its id; `leaked`; `foreign`;
-- `neverUsed` and `lastUsedBefore`, which read the hashes with the prefix `usages`. Times are Unix milliseconds.
-- records: prefix
local function matches(condition, records, keyId)
  local enabled, name, externalId, expires, roles, leak, foreign, created =
    unpack(redis.call('HMGET', records .. keyId, 'e', 'n', 'o', 'x', 'R', 'K', 'f', 'c'))
  name, externalId, expires = name or '', externalId or '', tonumber(expires) or 0
  if condition.enabled and enabled ~= condition.enabled then return false end
  if condition.prefix and string.sub(name, 1, #condition.prefix) ~= condition.prefix then return false end
  if condition.part and not string.find(
    fold(name .. '\n' .. keyId .. '\n' .. externalId, condition.forms), condition.part, 1, true
  ) then return false end
  if condition.expiredAt and (expires == 0 or expires > condition.expiredAt) then return false end
  if condition.unexpiredAt and expires > 0 and expires <= condition.unexpiredAt then return false end
  if condition.expiresBefore and (expires == 0 or expires >= condition.expiresBefore) then return false end
  if condition.role and not string.find(' ' .. (roles or '') .. ' ', ' ' .. condition.role .. ' ', 1, true) then return false end
  if condition.leaked and not leak or condition.foreign and not foreign then return false end
  if not condition.usages then return true end
  local used = tonumber(redis.call('HGET', condition.usages .. keyId, 't'))
  if condition.neverUsed and used then return false end
  return not condition.lastUsedBefore or (used or tonumber(created)) < condition.lastUsedBefore
end

-- Returns the conditions in a JSON object; nil if all keys meet them: ''
local function conditionsIn(conditions)
  if conditions == '' then return nil end
  return cjson.decode(conditions)
end
