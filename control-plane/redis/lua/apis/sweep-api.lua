#!lua flags=allow-oom
-- Removes records of a deleted API. The caller has removed their pointers.
--
-- KEYS 1 head  2 index
-- ARGV 1 record prefix  2 long-meta prefix  3 owner-index prefix  4… keyIds
-- Returns how many keys remain | -1 when the API is not deleted
if not redis.call('HGET', KEYS[1], 'deleted') then return -1 end
for i = 4, #ARGV do
  local keyId = ARGV[i]
  local owner, pool = unpack(redis.call('HMGET', ARGV[1] .. keyId, 'o', 'q'))
  if pool then redis.call('DEL', string.sub(KEYS[1], 1, -5) .. 'q:' .. pool) end
  if owner then redis.call('ZREM', ARGV[3] .. owner, keyId) end
  redis.call('DEL', ARGV[1] .. keyId, ARGV[2] .. keyId)
  redis.call('ZREM', KEYS[2], keyId)
end
return redis.call('ZCARD', KEYS[2])
