#!lua
-- Creates an API with an empty log.
--
-- KEYS 1 head  2 members, for a log that followers may have leased before it was created (lease.lua)
-- ARGV 1 now, Unix ms  2 lease, ms  3… field, value pairs, as in update-api.lua
-- Returns 'OK' | 'EXISTS' (the id is in use, or its deleted API is being swept)
if redis.call('HEXISTS', KEYS[1], 'c') == 1 then return 'EXISTS' end
local fence = ARGV[2]
if KEYS[2] and redis.call('ZCARD', KEYS[2]) > 0 and tonumber(fence) < 10000 then fence = '10000' end
redis.call('HSET', KEYS[1], 'c', ARGV[1], 'L', ARGV[2], 'Lf', fence, unpack(ARGV, 3))
return 'OK'
