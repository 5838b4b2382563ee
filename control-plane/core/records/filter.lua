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

-- Tells whether a key meets the conditions of a listing: those of KeyFilter in key-view.ts, but for `search` a `part`, folded,
-- with its `forms`. base: the beginning of the API's other keys
local function matches(condition, base, keyId)
  local enabled, name, externalId, expires, roles, leak, foreign, created, start, managedBy =
    unpack(redis.call('HMGET', base .. 'k:' .. keyId, 'e', 'n', 'o', 'x', 'R', 'K', 'f', 'c', 's', 'B'))
  name, externalId, expires = name or '', externalId or '', tonumber(expires) or 0
  if condition.enabled ~= nil and (enabled == '1') ~= condition.enabled then return false end
  if condition.namePrefix and string.sub(name, 1, #condition.namePrefix) ~= condition.namePrefix then return false end
  if condition.part and string.lower(start or '') ~= condition.part and not string.find(
    fold(name .. '\n' .. keyId .. '\n' .. externalId, condition.forms), condition.part, 1, true
  ) then return false end
  if condition.expiredAt and (expires == 0 or expires > condition.expiredAt) then return false end
  if condition.unexpiredAt and expires > 0 and expires <= condition.unexpiredAt then return false end
  if condition.expiresBefore and (expires == 0 or expires >= condition.expiresBefore) then return false end
  if condition.role and not string.find(' ' .. (roles or '') .. ' ', ' ' .. condition.role .. ' ', 1, true) then return false end
  if condition.managedBy and managedBy ~= condition.managedBy then return false end
  if condition.leaked and not leak or condition.foreign and not foreign then return false end
  if not (condition.neverUsed or condition.lastUsedBefore) then return true end
  local used = tonumber(redis.call('HGET', base .. 'u:' .. keyId, 't'))
  if condition.neverUsed and used then return false end
  return not condition.lastUsedBefore or (used or tonumber(created)) < condition.lastUsedBefore
end
