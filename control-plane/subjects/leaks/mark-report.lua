#!lua
-- Marks a report of leaked secrets as handled.
--
-- ms: time until the mark is forgotten
-- Returns OK
return redis.call('SET', mark, '1', 'PX', ms)
