#!lua flags=allow-oom
-- Sets when the next event about the expiry of keys is due, unless they changed since they were read; and forgets marks
-- of pools, unless they were made again.
--
-- expiries: the expiry index  marks: of pools
-- records: beginning of the records' names  keys: number of keys
-- about: for each key its id; when it was due; when it expires; when the next event is due, '' = never
--        and for each mark its name and its value
-- Returns the number of keys that were scheduled
local count = 0
for i = 1, 4 * keys, 4 do
  local keyId, due, expires, nextDue = unpack(about, i, i + 3)
  local present = redis.call('HGET', records .. keyId, 'x') or ''
  if redis.call('ZSCORE', expiries, keyId) == due and present == expires then
    if nextDue == '' then redis.call('ZREM', expiries, keyId) else redis.call('ZADD', expiries, nextDue, keyId) end
    count = count + 1
  end
end
for i = 1 + 4 * keys, #about, 2 do
  if redis.call('HGET', marks, about[i]) == about[i + 1] then redis.call('HDEL', marks, about[i]) end
end
return count
