#!lua
-- Ends a call that begin-once.lua began.
--
-- count: the calls of this caller in this day, of which one that changed nothing is none
-- run: of those that were begun, or it may not end the call; outcome: 'done': with the answer; 'nothing': it changed nothing,
-- so it may be made anew; 'unknown': a repetition resumes it
-- Returns nothing
if redis.call('HGET', mark, 'r') ~= run then return end
if outcome == 'done' then redis.call('HSET', mark, 'a', answer)
elseif outcome == 'nothing' then
  redis.call('DEL', mark)
  local calls = tonumber(redis.call('GET', count) or 0)
  if calls > 0 then redis.call('SET', count, string.format('%.0f', calls - 1), 'KEEPTTL') end
else redis.call('HSET', mark, 'u', '0') end
