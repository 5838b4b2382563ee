#!lua
-- Sets an immutable pointer.
--
-- KEYS 1 pointer
-- ARGV 1 value
-- Returns 1 when it holds the value now, 0 when it holds another
if redis.call('SET', KEYS[1], ARGV[1], 'NX') then return 1 end
return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0
