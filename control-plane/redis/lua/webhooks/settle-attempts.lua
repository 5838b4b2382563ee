#!lua flags=allow-oom
-- Records attempts to deliver events, removes the events that need no further attempt from the queue, and keeps the
-- latest attempts and the latest events that were given up.
--
-- KEYS 1 sender  2 queue  3 retries  4 attempts  5 dead events  6 state  7 endpoints
-- ARGV 1 name of the sender  2 ms for which it is the sender  3 endpoint  4 attempts to keep  5 dead events to keep
--      6 consecutive failures of the endpoint  7 Unix ms until which it is paused, 0 = it is not
--      8… for each attempt: id in the queue; 'delivered' | 'failed' | 'dead'; number of failed attempts; Unix ms of the
--         next one; the record of the attempt, JSON; webhook-id; type; order; body
-- Returns 1 | 0 if another is the sender
-- include sender.lua
local queue, retries, attempts, dead, state = unpack(KEYS, 2, 6)
if not isSender(KEYS[1], ARGV[1], ARGV[2]) then return 0 end
if redis.call('HEXISTS', KEYS[7], ARGV[3]) == 0 then return 1 end
redis.call('HSET', state, 'failures', ARGV[6], 'pausedUntil', ARGV[7])

local function keep(stream, most, record, id, type, order, body)
  redis.call('XADD', stream, 'MAXLEN', '~', most, '*', 'a', record, 'i', id, 't', type, 'k', order, 'e', body)
end

for at = 8, #ARGV, 9 do
  local entry, result, failures, nextAt, record = unpack(ARGV, at, at + 4)
  if result == 'failed' then
    if redis.call('XRANGE', queue, entry, entry)[1] then redis.call('HSET', retries, entry, failures .. ' ' .. nextAt) end
  else
    redis.call('XDEL', queue, entry)
    redis.call('HDEL', retries, entry)
  end
  keep(attempts, ARGV[4], record, unpack(ARGV, at + 5, at + 8))
  if result == 'dead' then
    redis.call('HINCRBY', state, 'dead', 1)
    keep(dead, ARGV[5], record, unpack(ARGV, at + 5, at + 8))
  end
end
return 1
