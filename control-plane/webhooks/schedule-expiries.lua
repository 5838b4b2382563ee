#!lua flags=allow-oom
-- Sets when the next event about the expiry of keys is due, unless they changed since they were read; and forgets pools
-- that ran out of credits, unless they ran out again.
--
-- KEYS 1 expiry index  2 exhausted pools
-- ARGV 1 beginning of the records' names  2 number of keys
--      3… for each key: its id; when it was due; when it expires; when the next event is due, '' = never
--         and for each pool: its id; since when
-- Returns the number of keys that were scheduled
local keys, count = tonumber(ARGV[2]), 0
for i = 3, 2 + 4 * keys, 4 do
  local keyId, due, expires, nextDue = unpack(ARGV, i, i + 3)
  local present = redis.call('HGET', ARGV[1] .. keyId, 'x') or ''
  if redis.call('ZSCORE', KEYS[1], keyId) == due and present == expires then
    if nextDue == '' then redis.call('ZREM', KEYS[1], keyId) else redis.call('ZADD', KEYS[1], nextDue, keyId) end
    count = count + 1
  end
end
for i = 3 + 4 * keys, #ARGV, 2 do
  if redis.call('HGET', KEYS[2], ARGV[i]) == ARGV[i + 1] then redis.call('HDEL', KEYS[2], ARGV[i]) end
end
return count
