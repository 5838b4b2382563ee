#!lua flags=allow-oom
-- Deletes a root key and all that descend from it.
--
-- KEYS 1 index (rootKeyId → secret hash)  2 descendants (rootKeyId → number of root keys that descend from it)
-- ARGV 1 rootKeyId  2 prefix of the records
-- Returns the number of deleted root keys
local index, descendants = unpack(KEYS)
local rows = redis.call('HGETALL', index)
local deleted = 0
for i = 1, #rows, 2 do
  local id, record = rows[i], ARGV[2] .. rows[i + 1]
  local ancestors = redis.call('HGET', record, 'ancestors') or ''
  if id == ARGV[1] or string.find(' ' .. ancestors .. ' ', ' ' .. ARGV[1] .. ' ', 1, true) then
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
redis.call('HDEL', descendants, ARGV[1])
return deleted
