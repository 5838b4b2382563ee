#!lua flags=allow-oom
-- Changes the lease of an API in the order that keeps fences right: a fence must wait for the longest lease that may
-- be alive. To raise it: `fence-first`, then (when that is on all replicas) `grant`. To lower it: `grant`, then, one
-- old fence later, `fence-last`, which does nothing if another call set the lease in between.
--
-- lease: ms; name: of this change
-- Returns {'OK', Lf} | {'CONFLICT'} | {'NO_API'}
local created, L, Lf, t = unpack(redis.call('HMGET', head, 'c', 'L', 'Lf', 't'))
if not created then return {'NO_API'} end
Lf = tonumber(Lf or 0)
if step == 'fence-first' then
  Lf = math.max(Lf, tonumber(lease))
  redis.call('HSET', head, 'Lf', string.format('%.0f', Lf), 't', name)
elseif step == 'grant' then
  if tonumber(lease) > Lf then return {'CONFLICT'} end
  redis.call('HSET', head, 'L', lease, 't', name)
elseif step == 'fence-last' then
  if t ~= name or tonumber(L) ~= tonumber(lease) then return {'CONFLICT'} end
  Lf = tonumber(lease)
  redis.call('HSET', head, 'Lf', lease)
end
return {'OK', string.format('%.0f', Lf)}
