#!lua
-- Appends to the audit log, which keeps at least the latest events.
--
-- KEYS 1 stream
-- ARGV 1 event, JSON  2 events kept
-- Returns the event's id
return redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'e', ARGV[1])
