#!lua
-- Switches tokens of an API, or of the shared log, in the order that keeps fences right: changes wait for tokens before the
-- first is issued, and until the last one has ended. To switch them on: `fence-first`, then (when that is on all replicas)
-- `grant`. To switch them off: `stop`, then, one fence later, `fence-last`.
--
-- token: of the switching on; another call may have switched them on since, so the steps after `fence-first` need its token
-- Returns 'OK' | 'CONFLICT' | 'NO_API'
local created, deleted, issues, waits = unpack(redis.call('HMGET', head, 'c', 'deleted', 'T', 'Tf'))
if not created or deleted then return 'NO_API' end
if step == 'fence-first' then redis.call('HSET', head, 'Tf', token)
elseif waits ~= token then return 'CONFLICT'
elseif step == 'grant' then redis.call('HSET', head, 'T', '1')
elseif step == 'stop' then redis.call('HDEL', head, 'T')
elseif issues then return 'CONFLICT'
else redis.call('HDEL', head, 'Tf') end
return 'OK'
