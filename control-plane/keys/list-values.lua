#!lua flags=allow-oom
-- Lists what some of an API's keys are ordered by, as of one moment. Not flagged `no-writes`, so that a deposed primary
-- refuses to answer.
--
-- KEYS 1 head  2 the index to read: the API's or an owner's
-- ARGV 1 record prefix  2 prefix of the hashes with the values  3 field of the value  4 creation number to begin with, '' = the first
--      5 maximum number of keys examined  6 enabled: '1' | '0' | '' = either  7 prefix of the keys' names
--      8 part of the name, the id or the external id, folded  9 its forms, see filter.lua
-- Returns {} if there is no such API | {number of keys in the index, creation number to continue from or '', and for each key
--   its creation number and its value, '' = none}
-- include filter.lua
local created, deleted = unpack(redis.call('HMGET', KEYS[1], 'c', 'deleted'))
if not created or deleted then return {} end
local records, values, field, from, most, enabled, prefix, part, forms = unpack(ARGV)
local condition = conditionOf(enabled, prefix, part, forms)
if from == '' then from = '-inf' end
local found = redis.call('ZRANGEBYSCORE', KEYS[2], from, '+inf', 'WITHSCORES', 'LIMIT', 0, most + 1)
local reply = {redis.call('ZCARD', KEYS[2]), ''}
if #found > 2 * most then reply[2] = found[#found] end
for i = 1, math.min(#found, 2 * most), 2 do
  local keyId = found[i]
  local f = condition and redis.call('HMGET', records .. keyId, 'e', 'n', 'o')
  if not f or matches(condition, keyId, f[1], f[2] or '', f[3] or '') then
    reply[#reply + 1] = found[i + 1]
    reply[#reply + 1] = redis.call('HGET', values .. keyId, field) or ''
  end
end
return reply
