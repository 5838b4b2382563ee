#!lua
-- Ends a call that begin-once.lua began.
--
-- run: of those that were begun, or it may not end the call; outcome: 'done': with the answer; 'nothing': it changed nothing,
-- so it may be made anew; 'unknown': a repetition resumes it
-- Returns nothing
if redis.call('HGET', mark, 'r') ~= run then return end
if outcome == 'done' then redis.call('HSET', mark, 'a', answer)
elseif outcome == 'nothing' then redis.call('DEL', mark)
else redis.call('HSET', mark, 'u', '0') end
