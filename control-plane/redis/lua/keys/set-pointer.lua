#!lua
-- Sets an immutable pointer, unless it exists.
--
-- KEYS 1 pointer
-- ARGV 1 value
-- Returns the value that the pointer now holds
if redis.call('SET', KEYS[1], ARGV[1], 'NX') then return ARGV[1] end
return redis.call('GET', KEYS[1])
