#!lua
-- Queues an event of the latest attempts or of those that were given up once more, unless it still waits, and lets the sender
-- try at once.
--
-- stream: attempts or dead events; id: of the event there; most: maximum length of the queue; now: Unix ms
-- Returns 'OK' | 'NOT_FOUND' | 'FULL'
local row = redis.call('XRANGE', stream, id, id)[1]
if not row then return 'NOT_FOUND' end
-- fields: a, record, i, id, t, type, k, order, e, body, q, entry in the queue
local fields = row[2]
if not (fields[12] and redis.call('XRANGE', queue, fields[12], fields[12])[1]) then
  if redis.call('XLEN', queue) >= tonumber(most) then return 'FULL' end
  redis.call('XADD', queue, '*', unpack(fields, 3, 10))
end
if tonumber(redis.call('HGET', state, 'pausedUntil') or 0) > tonumber(now) then redis.call('HSET', state, 'pausedUntil', now) end
redis.call('HSET', state, 'hurriedAt', now)
return 'OK'
