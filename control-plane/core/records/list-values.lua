#!lua flags=allow-oom
-- Lists what some of an API's keys are ordered by, as of one moment. Not flagged `no-writes`, so that a deposed primary
-- refuses to answer.
--
-- head, source: the index to read, the API's or an owner's
-- base: the beginning of the API's other keys  values: prefix of the hashes with the values  field: of the value  from: creation number to begin with, '' = the first
-- most: maximum number of keys examined  conditions: of filter.lua, JSON; '' = all keys meet them
-- Returns {} if there is no such API | {number of keys in the index, creation number to continue from or '', and for each key
--   its creation number and its value, '' = none}
-- include filter.lua
local created, deleted = unpack(redis.call('HMGET', head, 'c', 'deleted'))
if not created or deleted then return {} end
local condition = conditions ~= '' and cjson.decode(conditions)
if from == '' then from = '-inf' end
local found = redis.call('ZRANGEBYSCORE', source, from, '+inf', 'WITHSCORES', 'LIMIT', 0, most + 1)
local reply = {redis.call('ZCARD', source), ''}
if #found > 2 * most then reply[2] = found[#found] end
for i = 1, math.min(#found, 2 * most), 2 do
  local keyId = found[i]
  if not condition or matches(condition, base, keyId) then
    reply[#reply + 1] = found[i + 1]
    reply[#reply + 1] = redis.call('HGET', values .. keyId, field) or ''
  end
end
return reply
