#!lua flags=allow-oom
-- Reads a root key's record. A script and not HGETALL, because a deposed primary answers HGETALL.
--
-- KEYS 1 record
-- Returns field, value, …; empty when there is none
return redis.call('HGETALL', KEYS[1])
