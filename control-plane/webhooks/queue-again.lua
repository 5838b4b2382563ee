#!lua
-- Queues an event of the latest attempts or of those that were given up once more.
--
-- stream: attempts or dead events; id: of the event there; most: maximum length of the queue
-- Returns 'OK' | 'NOT_FOUND' | 'FULL'
local row = redis.call('XRANGE', stream, id, id)[1]
if not row then return 'NOT_FOUND' end
if redis.call('XLEN', queue) >= tonumber(most) then return 'FULL' end
redis.call('XADD', queue, '*', unpack(row[2], 3))
return 'OK'
