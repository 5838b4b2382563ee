#!lua flags=allow-oom
-- Deletes a root key and all that descend from it.
--
-- index: rootKeyId → secret hash; descendants: rootKeyId → number of root keys that descend from it
-- records: the names of records, without the secret hash at the end
-- Returns the number of deleted root keys
local rows = redis.call('HGETALL', index)
local deleted = 0
for i = 1, #rows, 2 do
  local id, record = rows[i], records .. rows[i + 1]
  local ancestors = redis.call('HGET', record, 'ancestors') or ''
  if id == rootKeyId or string.find(' ' .. ancestors .. ' ', ' ' .. rootKeyId .. ' ', 1, true) then
    redis.call('DEL', record)
    redis.call('HDEL', index, id)
    redis.call('HDEL', descendants, id)
    for ancestor in string.gmatch(ancestors, '%S+') do
      if redis.call('HEXISTS', descendants, ancestor) == 1 then redis.call('HINCRBY', descendants, ancestor, -1) end
    end
    deleted = deleted + 1
  end
end
-- A root key may have been created while the one that led to it was deleted.
redis.call('HDEL', descendants, rootKeyId)
return deleted
