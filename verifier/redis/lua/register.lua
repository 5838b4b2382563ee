#!lua flags=allow-oom
-- REGISTER: makes a follower a member. The follower sends it after its subscription is confirmed, and if there are replicas,
-- WAIT after it. allow-oom: a full Redis must not stop verifiers.
--
-- KEYS 1 head  2 members
-- ARGV 1 member, which begins with the protocol that it speaks  2 nonce
-- Returns {nonce, sequence, hash, lease ms, '1' if the API is deleted, mark of the last creation, number of identities}
--         | {nonce, 'TOO_OLD', the protocol that the API needs}
-- include lease.lua
local s, h, L, deleted, g, identities, needs =
  unpack(redis.call('HMGET', KEYS[1], 's', 'h', 'L', 'deleted', 'g', 'ids', 'P'))
if tonumber(needs or 1) > tonumber(string.match(ARGV[1], '^%d+') or 1) then return {ARGV[2], 'TOO_OLD', needs} end
local sequence = s or '0'
redis.call('ZADD', KEYS[2], sequence, ARGV[1])
return {ARGV[2], sequence, h or '', leaseOf(KEYS[1], L), deleted and '1' or '0', g or '0-', identities or '0'}
