#!lua
-- Creates, changes or deletes the record of a webhook endpoint, if it is still as the caller read it.
--
-- log: the audit log; before: the record as it was read, '' = it must not exist; after: the new record, '' = delete it and its data
-- most: maximum number of endpoints; group: of the streams
-- Returns 'OK' | 'CONFLICT': somebody else changed it | 'FULL': there are too many endpoints
--         | 'EXISTS ' and an id: the same set has that endpoint of the same name
-- include pass-over.lua
local present = redis.call('HGET', endpoints, id) or ''
if present ~= before then return 'CONFLICT' end
if after == '' then
  redis.call('HDEL', endpoints, id)
  redis.call('DEL', queue, retries, attempts, dead, state)
  return 'OK'
end
if present == '' then
  local new = cjson.decode(after)
  if new.managedBy and new.name then
    for _, text in ipairs(redis.call('HVALS', endpoints)) do
      local isJson, other = pcall(cjson.decode, text)
      if isJson and type(other) == 'table' and other.managedBy == new.managedBy and other.name == new.name then
        return 'EXISTS ' .. tostring(other.endpointId)
      end
    end
  end
  if redis.call('HLEN', endpoints) >= tonumber(most) then return 'FULL' end
end
-- Nobody has read the events before the first endpoint, and it gets none of them.
if redis.call('HLEN', endpoints) == 0 then passOver(log, group) end
redis.call('HSET', endpoints, id, after)
return 'OK'
