#!lua flags=allow-oom
-- Enables or disables a root key.
--
-- enabled: 1 or 0
-- Returns 'OK' | 'NOT_FOUND'
if redis.call('HGET', record, 'id') ~= rootKeyId then return 'NOT_FOUND' end
redis.call('HSET', record, 'enabled', enabled)
return 'OK'
