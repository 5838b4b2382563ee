#!lua
-- Marks a report of leaked secrets as handled.
--
-- KEYS 1 mark
-- ARGV 1 time until the mark is forgotten, ms
-- Returns OK
return redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
