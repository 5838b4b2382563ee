#!lua
-- Creates an API with an empty log.
--
-- members: of a log that followers may have leased before it was created (lease.lua), else none
-- now: Unix ms; lease: ms; fields: field, value pairs, as in update-api.lua
-- Returns 'OK' | 'EXISTS' (the id is in use, or its deleted API is being swept)
if redis.call('HEXISTS', head, 'c') == 1 then return 'EXISTS' end
local fence = lease
if members[1] and redis.call('ZCARD', members[1]) > 0 and tonumber(fence) < 10000 then fence = '10000' end
redis.call('HSET', head, 'c', now, 'L', lease, 'Lf', fence, unpack(fields))
return 'OK'
