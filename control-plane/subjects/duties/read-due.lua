#!lua flags=allow-oom
-- Reads what is due in an API: keys of which an event about their expiry is due, and marks of pools: credits that
-- ran out, and thresholds that were passed. Not flagged `no-writes`, so that a deposed primary refuses to answer.
--
-- head, expiries: the expiry index  marks: of pools  noted: keys that rules disabled and that are not in the audit log yet
-- now: Unix ms  most: maximum number of keys  records: beginning of the records' names  poolNames: beginning of the pools' names
-- Returns {} if there is no such API
--         | {keys, marks, rules}: for each key {id, when it was due, expires, externalId, name}, and
--           for each mark {its name, its value, and for each key that it concerns id, externalId, name}; rules: empty if the API has no rules for its keys, and left nothing to record
local created, deleted, longest, unused = unpack(redis.call('HMGET', head, 'c', 'deleted', 'longest', 'unused'))
if not created or deleted then return {} end
local function about(keyId) return unpack(redis.call('HMGET', records .. keyId, 'x', 'o', 'n')) end

-- A limit's pool begins with the first key of some rotations, its owner. Returns the latest of these that is left.
local function latest(keyId)
  for _ = 1, 100 do
    local following = redis.call('HGET', records .. keyId, 'T')
    if not following then break end
    keyId = following
  end
  return keyId
end

local keys, marked = {}, {}
local due = redis.call('ZRANGEBYSCORE', expiries, 0, now, 'WITHSCORES', 'LIMIT', 0, most)
for i = 1, #due, 2 do
  local expires, owner, name = about(due[i])
  keys[#keys + 1] = {due[i], due[i + 1], expires or '', owner or '', name or ''}
end
local all = redis.call('HGETALL', marks)
for i = 1, #all, 2 do
  local mark, owner = {all[i], all[i + 1]}, string.match(all[i], '^([^.%s]+)%.')
  local ids = owner and latest(owner) or redis.call('HGET', poolNames .. string.match(all[i], '^%S+'), 'k')
  for keyId in string.gmatch(ids or '', '%S+') do
    local _, externalId, name = about(keyId)
    for _, value in ipairs({keyId, externalId or '', name or ''}) do mark[#mark + 1] = value end
  end
  marked[#marked + 1] = mark
end
local hasRules = longest or unused or redis.call('EXISTS', noted) == 1
return {keys, marked, hasRules and {{'1'}} or {}}
