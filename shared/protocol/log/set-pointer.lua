#!lua
-- Sets an immutable pointer, unless it exists.
--
-- Returns the value that the pointer now holds
if redis.call('SET', pointer, value, 'NX') then return value end
return redis.call('GET', pointer)
