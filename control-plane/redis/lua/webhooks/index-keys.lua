#!lua flags=allow-oom
-- Adds keys of earlier releases to the expiry index of their API, and names them in the pools of their credits.
--
-- KEYS 1 head  2 expiry index
-- ARGV 1 beginning of the records' names  2 beginning of the pools' names  3 new state of the index, '' = unchanged
--      4… ids of keys
-- Returns the number of keys that were added
local added = 0
for i = 4, #ARGV do
  local expires, pool = unpack(redis.call('HMGET', ARGV[1] .. ARGV[i], 'x', 'q'))
  if expires then added = added + redis.call('ZADD', KEYS[2], 'NX', 0, ARGV[i]) end
  if pool and redis.call('EXISTS', ARGV[2] .. pool) == 1 then redis.call('HSETNX', ARGV[2] .. pool, 'k', ARGV[i]) end
end
if ARGV[3] ~= '' and redis.call('HEXISTS', KEYS[1], 'c') == 1 then redis.call('HSET', KEYS[1], 'xi', ARGV[3]) end
return added
