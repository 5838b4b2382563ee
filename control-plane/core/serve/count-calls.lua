#!lua
-- Counts calls in the window that its first call opened.
--
-- window: its length, ms; count: number of calls
-- Returns {calls in this window, ms until it ends}
local calls
for _ = 1, tonumber(count) do calls = redis.call('INCR', counter) end
local left = redis.call('PTTL', counter)
if left < 0 then
  redis.call('PEXPIRE', counter, window)
  left = tonumber(window)
end
return {calls, left}
