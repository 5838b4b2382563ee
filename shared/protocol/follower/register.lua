#!lua flags=allow-oom
-- REGISTER: makes a follower a member. The follower sends it after its subscription is confirmed, and if there are replicas,
-- WAIT after it. allow-oom: a full Redis must not stop verifiers.
--
-- member: begins with the protocol that it speaks
-- Returns {'OK', nonce, sequence, hash, lease ms, '1' if the API is deleted, mark of the last creation, number of identities}
--         | {'TOO_OLD', nonce, the protocol that the API needs}
--         | {'REFUSED', nonce}: this history is older than it was (watch-history.lua), until somebody accepts it
-- include lease.lua
local s, h, L, deleted, g, identities, needs, refused =
  unpack(redis.call('HMGET', head, 's', 'h', 'L', 'deleted', 'g', 'ids', 'P', 'X'))
if refused then return {'REFUSED', nonce} end
if tonumber(needs or 1) > tonumber(string.match(member, '^%d+') or 1) then return {'TOO_OLD', nonce, needs} end
local sequence = s or '0'
redis.call('ZADD', members, sequence, member)
return {'OK', nonce, sequence, h or '', leaseOf(head, L), deleted and '1' or '0', g or '0-', identities or '0'}
