#!lua
-- Queues an event of the latest attempts or of those that were given up once more.
--
-- KEYS 1 attempts or dead events  2 queue
-- ARGV 1 id of the event there  2 maximum length of the queue
-- Returns 'OK' | 'NOT_FOUND' | 'FULL'
local row = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not row then return 'NOT_FOUND' end
if redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[2]) then return 'FULL' end
redis.call('XADD', KEYS[2], '*', unpack(row[2], 3))
return 'OK'
