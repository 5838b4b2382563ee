#!lua
-- Creates, changes or deletes the record of a webhook endpoint, if it is still as the caller read it.
--
-- KEYS 1 endpoints  2 queue  3 retries  4 attempts  5 dead events  6 state  7 audit log
-- ARGV 1 id  2 the record as it was read, '' = it must not exist  3 the new record, '' = delete it and its data
--      4 maximum number of endpoints  5 group of the streams
-- Returns 'OK' | 'CONFLICT': somebody else changed it | 'FULL': there are too many endpoints
-- include pass-over.lua
local present = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if present ~= ARGV[2] then return 'CONFLICT' end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
  return 'OK'
end
if present == '' and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return 'FULL' end
-- Nobody has read the events before the first endpoint, and it gets none of them.
if redis.call('HLEN', KEYS[1]) == 0 then passOver(KEYS[7], ARGV[5]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 'OK'
