#!lua
-- Switches tokens of an API, or of the shared log, in the order that keeps fences right: changes wait for tokens before the
-- first is issued, and until the last one has ended. To switch them on: `fence-first`, then (when that is on all replicas)
-- `grant`. To switch them off: `stop`, then, one fence and the leeway later, `fence-last`.
--
-- The leeway is the time for which others accept a token after its end. To raise it: `fence-first`, then the API's own setting
-- (update-api.lua). To lower it: `fence-first`, the setting, then, one fence and the old leeway later, `lower`.
--
-- token: of the latest `fence-first`; another call may have come since, so the steps after it need its token
-- leeway: ms; of `fence-first`, the least for which changes then wait; of `lower`, the most
-- Returns 'OK' | 'CONFLICT' | 'NO_API'
local created, deleted, issues, waits, Wf = unpack(redis.call('HMGET', head, 'c', 'deleted', 'T', 'Tf', 'Wf'))
if not created or deleted then return 'NO_API' end
leeway = tonumber(leeway)
if step == 'fence-first' then
  if waits then leeway = math.max(leeway, tonumber(Wf or 62000)) end
  redis.call('HSET', head, 'Tf', token, 'Wf', string.format('%.0f', leeway))
elseif waits ~= token then return 'CONFLICT'
elseif step == 'grant' then redis.call('HSET', head, 'T', '1')
elseif step == 'stop' then redis.call('HDEL', head, 'T')
elseif step == 'lower' then
  redis.call('HSET', head, 'Wf', string.format('%.0f', math.min(leeway, tonumber(Wf or 62000))))
elseif issues then return 'CONFLICT'
else redis.call('HDEL', head, 'Tf', 'Wf') end
return 'OK'
