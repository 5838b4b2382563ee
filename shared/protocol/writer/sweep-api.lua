#!lua flags=allow-oom
-- Removes records of a deleted API. The caller has removed their pointers.
--
-- records, metas, owners, pools: the names of records, long metas, owner indexes and pools, each without its end
-- Returns how many keys remain | -1 when the API is not deleted
if not redis.call('HGET', head, 'deleted') then return -1 end
for _, keyId in ipairs(keyIds) do
  local owner, pool = unpack(redis.call('HMGET', records .. keyId, 'o', 'q'))
  if pool then redis.call('DEL', pools .. pool) end
  if owner then redis.call('ZREM', owners .. owner, keyId) end
  redis.call('DEL', records .. keyId, metas .. keyId)
  redis.call('ZREM', index, keyId)
end
return redis.call('ZCARD', index)
