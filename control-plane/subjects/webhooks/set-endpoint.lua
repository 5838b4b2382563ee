#!lua
-- Creates, changes or deletes the record of a webhook endpoint, if it is still as the caller read it.
--
-- log: the audit log; before: the record as it was read, '' = it must not exist; after: the new record, '' = delete it and its data
-- most: maximum number of endpoints; group: of the streams
-- Returns 'OK' | 'CONFLICT': somebody else changed it | 'FULL': there are too many endpoints
-- include pass-over.lua
local present = redis.call('HGET', endpoints, id) or ''
if present ~= before then return 'CONFLICT' end
if after == '' then
  redis.call('HDEL', endpoints, id)
  redis.call('DEL', queue, retries, attempts, dead, state)
  return 'OK'
end
if present == '' and redis.call('HLEN', endpoints) >= tonumber(most) then return 'FULL' end
-- Nobody has read the events before the first endpoint, and it gets none of them.
if redis.call('HLEN', endpoints) == 0 then passOver(log, group) end
redis.call('HSET', endpoints, id, after)
return 'OK'
