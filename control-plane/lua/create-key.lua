#!lua
-- Creates a key's record, after its two pointers exist. Not a log entry: nothing cached can contradict it.
--
-- KEYS 1 head  2 index  3 record  4 long meta  5 owner index (the record again where the key has no owner)
-- ARGV 1 keyId  2 now, Unix ms  3 '1' = create the API where it is not there  4 lease, ms  5 meta  6 externalId
--      7 '1' = of another format than ours  8… field, value pairs of the record
-- Returns 'OK' | 'NO_API' | 'DELETED' (the API is being swept) | 'EXISTS'
local head, index, record, long, owners = unpack(KEYS)
local keyId, now, auto, lease, meta, owner, foreign = unpack(ARGV)

local created, deleted = unpack(redis.call('HMGET', head, 'c', 'deleted'))
if deleted then return 'DELETED' end
if not created then
  if auto ~= '1' then return 'NO_API' end
  redis.call('HSET', head, 'c', now, 'L', lease, 'Lf', lease)
end
if redis.call('EXISTS', record) == 1 then return 'EXISTS' end

local number = redis.call('HINCRBY', head, 'n', 1)
redis.call('HSET', record, 'i', number, unpack(ARGV, 8))
if owner ~= '' then
  redis.call('HSET', record, 'o', owner)
  redis.call('ZADD', owners, number, keyId)
end
if #meta > 64 then
  redis.call('SET', long, meta)
  redis.call('HSET', record, 'M', '1')
elseif meta ~= '' then
  redis.call('HSET', record, 'm', meta)
end
redis.call('ZADD', index, number, keyId)
if foreign == '1' then redis.call('HSET', head, 'foreign', '1') end
return 'OK'
