#!lua
-- Creates a root key, unless there are too many, or too many descend from one of those that led to it.
--
-- KEYS 1 record  2 index (rootKeyId → secret hash)  3 descendants (rootKeyId → number of root keys that descend from it)
-- ARGV 1 rootKeyId  2 secret hash  3 the most root keys  4 the most descendants of one  5 ids of those that led to it, separated by spaces
--      6… field, value pairs of the record
-- Returns 'OK' | 'EXISTS' | 'FULL' | the id of the root key that has too many descendants
local record, index, descendants = unpack(KEYS)
local id, ancestors = ARGV[1], ARGV[5]
if redis.call('EXISTS', record) == 1 or redis.call('HEXISTS', index, id) == 1 then return 'EXISTS' end
if redis.call('HLEN', index) >= tonumber(ARGV[3]) then return 'FULL' end
for ancestor in string.gmatch(ancestors, '%S+') do
  if tonumber(redis.call('HGET', descendants, ancestor) or 0) >= tonumber(ARGV[4]) then return ancestor end
end
for ancestor in string.gmatch(ancestors, '%S+') do redis.call('HINCRBY', descendants, ancestor, 1) end
redis.call('HSET', record, 'id', id, 'ancestors', ancestors, unpack(ARGV, 6))
redis.call('HSET', index, id, ARGV[2])
return 'OK'
