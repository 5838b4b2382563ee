#!lua
-- Creates a root key, unless there are too many, or too many descend from one of those that led to it.
--
-- index: rootKeyId → secret hash; descendants: rootKeyId → number of root keys that descend from it
-- most, mostDescendants: of all, and of one; ancestors: ids of those that led to it, separated by spaces
-- fields: field, value pairs of the record
-- Returns 'OK' | 'EXISTS' | 'FULL' | the id of the root key that has too many descendants
if redis.call('EXISTS', record) == 1 or redis.call('HEXISTS', index, id) == 1 then return 'EXISTS' end
if redis.call('HLEN', index) >= tonumber(most) then return 'FULL' end
for ancestor in string.gmatch(ancestors, '%S+') do
  if tonumber(redis.call('HGET', descendants, ancestor) or 0) >= tonumber(mostDescendants) then return ancestor end
end
for ancestor in string.gmatch(ancestors, '%S+') do redis.call('HINCRBY', descendants, ancestor, 1) end
redis.call('HSET', record, 'id', id, 'ancestors', ancestors, unpack(fields))
redis.call('HSET', index, id, secretHash)
return 'OK'
