#!lua flags=allow-oom
-- Reads what is due in an API: keys of which an event about their expiry is due, and pools whose credits ran out. Not
-- flagged `no-writes`, so that a deposed primary refuses to answer.
--
-- KEYS 1 head  2 expiry index  3 exhausted pools
-- ARGV 1 now, Unix ms  2 maximum number of keys  3 beginning of the records' names  4 beginning of the pools' names
-- Returns {} if there is no such API
--         | {keys, pools}: for each key {id, when it was due, expires, externalId, name}, and
--           for each pool {id, since when, and for each of its keys id, externalId, name}
local created, deleted = unpack(redis.call('HMGET', KEYS[1], 'c', 'deleted'))
if not created or deleted then return {} end
local function about(keyId) return unpack(redis.call('HMGET', ARGV[3] .. keyId, 'x', 'o', 'n')) end

local keys, pools = {}, {}
local due = redis.call('ZRANGEBYSCORE', KEYS[2], 0, ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for i = 1, #due, 2 do
  local expires, owner, name = about(due[i])
  keys[#keys + 1] = {due[i], due[i + 1], expires or '', owner or '', name or ''}
end
local exhausted = redis.call('HGETALL', KEYS[3])
for i = 1, #exhausted, 2 do
  local pool = {exhausted[i], exhausted[i + 1]}
  for keyId in string.gmatch(redis.call('HGET', ARGV[4] .. exhausted[i], 'k') or '', '%S+') do
    local _, owner, name = about(keyId)
    for _, value in ipairs({keyId, owner or '', name or ''}) do pool[#pool + 1] = value end
  end
  pools[#pools + 1] = pool
end
return {keys, pools}
