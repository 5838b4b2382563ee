#!lua flags=allow-oom
-- Appends to the audit log, which keeps at least the latest events. allow-oom: what may be changed on a Redis that is
-- full may be written down there, too; the streams' lengths bound it.
--
-- KEYS 1 stream
-- ARGV 1 event, JSON  2 events kept
-- Returns the event's id
return redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'e', ARGV[1])
