#!lua flags=allow-oom
-- Records attempts to deliver events, removes the events that need no further attempt from the queue, and keeps the
-- latest attempts and the latest events that were given up.
--
-- attempts, dead: streams; name, ms: of the sender, and for which it is the sender; attemptsKept, deadKept: of each stream
-- failures: consecutive ones of the endpoint; pausedUntil: Unix ms, 0 = it is not paused
-- deliveries: for each attempt its id in the queue; 'delivered' | 'failed' | 'dead'; number of failed attempts; Unix ms of the
--       next one; the record of the attempt, JSON; webhook-id; type; order; body
-- Returns 1 | 0 if another is the sender
-- include sender.lua
if not isSender(sender, name, ms) then return 0 end
if redis.call('HEXISTS', endpoints, endpoint) == 0 then return 1 end
redis.call('HSET', state, 'failures', failures, 'pausedUntil', pausedUntil)

local function keep(stream, most, entry, record, id, type, order, body)
  redis.call('XADD', stream, 'MAXLEN', '~', most, '*', 'a', record, 'i', id, 't', type, 'k', order, 'e', body, 'q', entry)
end

for at = 1, #deliveries, 9 do
  local entry, result, failed, nextAt, record = unpack(deliveries, at, at + 4)
  if result == 'failed' then
    if redis.call('XRANGE', queue, entry, entry)[1] then redis.call('HSET', retries, entry, failed .. ' ' .. nextAt) end
  else
    redis.call('XDEL', queue, entry)
    redis.call('HDEL', retries, entry)
  end
  keep(attempts, attemptsKept, entry, record, unpack(deliveries, at + 5, at + 8))
  if result == 'dead' then
    redis.call('HINCRBY', state, 'dead', 1)
    keep(dead, deadKept, entry, record, unpack(deliveries, at + 5, at + 8))
  end
end
return 1
