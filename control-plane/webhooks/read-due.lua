#!lua flags=allow-oom
-- Reads what is due in an API: keys of which an event about their expiry is due, and pools whose credits ran out. Not
-- flagged `no-writes`, so that a deposed primary refuses to answer.
--
-- head, expiries: the expiry index  exhausted: the exhausted pools  noted: keys that rules disabled and that are not in the audit log yet
-- now: Unix ms  most: maximum number of keys  records: beginning of the records' names  poolNames: beginning of the pools' names
-- Returns {} if there is no such API
--         | {keys, pools, rules}: for each key {id, when it was due, expires, externalId, name}, and
--           for each pool {id, since when, and for each of its keys id, externalId, name}; rules: empty if the API has no rules for its keys, and left nothing to record
local created, deleted, longest, unused = unpack(redis.call('HMGET', head, 'c', 'deleted', 'longest', 'unused'))
if not created or deleted then return {} end
local function about(keyId) return unpack(redis.call('HMGET', records .. keyId, 'x', 'o', 'n')) end

local keys, pools = {}, {}
local due = redis.call('ZRANGEBYSCORE', expiries, 0, now, 'WITHSCORES', 'LIMIT', 0, most)
for i = 1, #due, 2 do
  local expires, owner, name = about(due[i])
  keys[#keys + 1] = {due[i], due[i + 1], expires or '', owner or '', name or ''}
end
local empty = redis.call('HGETALL', exhausted)
for i = 1, #empty, 2 do
  local pool = {empty[i], empty[i + 1]}
  for keyId in string.gmatch(redis.call('HGET', poolNames .. empty[i], 'k') or '', '%S+') do
    local _, owner, name = about(keyId)
    for _, value in ipairs({keyId, owner or '', name or ''}) do pool[#pool + 1] = value end
  end
  pools[#pools + 1] = pool
end
local hasRules = longest or unused or redis.call('EXISTS', noted) == 1
return {keys, pools, hasRules and {{'1'}} or {}}
