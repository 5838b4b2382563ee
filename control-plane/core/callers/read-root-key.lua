#!lua flags=allow-oom
-- Reads a root key's record. This is a script because a deposed primary would answer a plain HGETALL.
--
-- Returns field, value, …; empty when there is no such root key
return redis.call('HGETALL', record)
