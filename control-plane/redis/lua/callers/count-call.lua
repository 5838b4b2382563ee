#!lua
-- Counts a call in the window that its first call opened.
--
-- KEYS 1 counter
-- ARGV 1 length of a window, ms
-- Returns {calls in this window, ms until it ends}
local calls = redis.call('INCR', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  left = tonumber(ARGV[1])
end
return {calls, left}
