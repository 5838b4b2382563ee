-- Returns when a key was last of use, Unix ms: used, as far as verifiers reported, changed, created; or when the rule was set.
--
-- base: the beginning of the API's other keys; since: when the rule about unused keys was set
local function lastUse(base, keyId, since)
  local created, changed = unpack(redis.call('HMGET', base .. 'k:' .. keyId, 'c', 'u'))
  local used = redis.call('HGET', base .. 'u:' .. keyId, 't')
  local function number(text) return tonumber(text or 0) or 0 end
  return math.max(number(since), number(created), number(changed), number(used)), number(used)
end
