#!lua flags=allow-oom
-- Changes the lease of an API in the order that keeps fences right: a fence must wait for the longest lease that may
-- be alive. To raise it: `fence-first`, then (when that is on all replicas) `grant`. To lower it: `grant`, then, one
-- old fence later, `fence-last`, which does nothing if another call set the lease in between.
--
-- KEYS 1 head
-- ARGV 1 step  2 lease, ms  3 token of this change
-- Returns {'OK', Lf} | {'CONFLICT'} | {'NO_API'}
local step, lease, token = unpack(ARGV)
local created, L, Lf, t = unpack(redis.call('HMGET', KEYS[1], 'c', 'L', 'Lf', 't'))
if not created then return {'NO_API'} end
Lf = tonumber(Lf or 0)
if step == 'fence-first' then
  Lf = math.max(Lf, tonumber(lease))
  redis.call('HSET', KEYS[1], 'Lf', string.format('%.0f', Lf), 't', token)
elseif step == 'grant' then
  if tonumber(lease) > Lf then return {'CONFLICT'} end
  redis.call('HSET', KEYS[1], 'L', lease, 't', token)
elseif step == 'fence-last' then
  if t ~= token or tonumber(L) ~= tonumber(lease) then return {'CONFLICT'} end
  Lf = tonumber(lease)
  redis.call('HSET', KEYS[1], 'Lf', lease)
end
return {'OK', string.format('%.0f', Lf)}
