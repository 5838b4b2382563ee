#!lua flags=allow-oom
-- Enables or disables a root key.
--
-- KEYS 1 record
-- ARGV 1 rootKeyId  2 enabled: 1 or 0
-- Returns 'OK' | 'NOT_FOUND'
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return 'NOT_FOUND' end
redis.call('HSET', KEYS[1], 'enabled', ARGV[2])
return 'OK'
