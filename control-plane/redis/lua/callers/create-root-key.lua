#!lua
-- Creates a root key.
--
-- KEYS 1 record  2 index (rootKeyId → secret hash)
-- ARGV 1 rootKeyId  2 secret hash  3… field, value pairs of the record
-- Returns 'OK' | 'EXISTS'
if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 'EXISTS' end
redis.call('HSET', KEYS[1], 'id', ARGV[1], unpack(ARGV, 3))
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return 'OK'
