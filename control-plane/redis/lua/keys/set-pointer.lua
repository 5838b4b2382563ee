#!lua
-- Sets an immutable pointer, unless it is there.
--
-- KEYS 1 pointer
-- ARGV 1 value
-- Returns the value that it holds now
if redis.call('SET', KEYS[1], ARGV[1], 'NX') then return ARGV[1] end
return redis.call('GET', KEYS[1])
