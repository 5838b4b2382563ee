#!lua
-- Lets verifiers of an API lend time to outsiders, as by tokens, or no longer, or says so of the shared log, in the order that keeps
-- fences right: changes wait for outsiders before the first is lent anything, and until the last time has ended. To begin:
-- `fence-first`, then (when that is on all replicas) `grant`. To end: `stop`, then, one fence and the time that lent time outlives it
-- later, `fence-last`.
--
-- Outsiders accept what they were lent for some time after its end. To raise this time: `fence-first`, then the API's own setting
-- (update-api.lua). To lower it: `fence-first`, the setting, then, one fence and the old time later, `lower`.
--
-- name: of the latest `fence-first`; another call may have come since, so the steps after it need its name
-- outlives: ms; of `fence-first`, the least for which changes then wait; of `lower`, the most
-- Returns 'OK' | 'CONFLICT' | 'NO_API'
local created, deleted, lends, fenced, Wf = unpack(redis.call('HMGET', head, 'c', 'deleted', 'T', 'Tf', 'Wf'))
if not created or deleted then return 'NO_API' end
outlives = tonumber(outlives)
if step == 'fence-first' then
  if fenced then outlives = math.max(outlives, tonumber(Wf or 62000)) end
  redis.call('HSET', head, 'Tf', name, 'Wf', string.format('%.0f', outlives))
elseif fenced ~= name then return 'CONFLICT'
elseif step == 'grant' then redis.call('HSET', head, 'T', '1')
elseif step == 'stop' then redis.call('HDEL', head, 'T')
elseif step == 'lower' then
  redis.call('HSET', head, 'Wf', string.format('%.0f', math.min(outlives, tonumber(Wf or 62000))))
elseif lends then return 'CONFLICT'
else redis.call('HDEL', head, 'Tf', 'Wf') end
return 'OK'
