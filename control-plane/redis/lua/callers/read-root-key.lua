#!lua flags=allow-oom
-- Reads a root key's record. This is a script because a deposed primary would answer a plain HGETALL.
--
-- KEYS 1 record
-- Returns field, value, …; empty when there is no such root key
return redis.call('HGETALL', KEYS[1])
