#!lua
-- Creates an API with an empty log.
--
-- KEYS 1 head
-- ARGV 1 now, Unix ms  2 lease, ms  3… field, value pairs, as update-api.lua has them
-- Returns 'OK' | 'EXISTS' (in use, or being swept)
if redis.call('HEXISTS', KEYS[1], 'c') == 1 then return 'EXISTS' end
redis.call('HSET', KEYS[1], 'c', ARGV[1], 'L', ARGV[2], 'Lf', ARGV[2], unpack(ARGV, 3))
return 'OK'
