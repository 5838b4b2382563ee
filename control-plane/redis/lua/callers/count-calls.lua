#!lua
-- Counts calls in the window that its first call opened.
--
-- KEYS 1 counter
-- ARGV 1 length of a window, ms  2 number of calls
-- Returns {calls in this window, ms until it ends}
local calls
for _ = 1, tonumber(ARGV[2]) do calls = redis.call('INCR', KEYS[1]) end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  left = tonumber(ARGV[1])
end
return {calls, left}
