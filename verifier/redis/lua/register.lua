#!lua flags=allow-oom
-- REGISTER: makes this follower count. Sent after its subscription was confirmed, followed by WAIT where there
-- are replicas. allow-oom: a full Redis must not stop verifiers.
--
-- KEYS 1 head  2 members
-- ARGV 1 member  2 nonce
-- Returns {nonce, sequence, hash, lease ms, '1' when the API is deleted, mark of the last creation}
local s, h, L, deleted, n, g = unpack(redis.call('HMGET', KEYS[1], 's', 'h', 'L', 'deleted', 'n', 'g'))
redis.call('ZADD', KEYS[2], s or 0, ARGV[1])
return {ARGV[2], s or '0', h or '', L or '0', deleted and '1' or '0', g or (n or '0') .. '-'}
