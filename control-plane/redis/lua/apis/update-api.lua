#!lua
-- Changes an API's name and the defaults of its new keys. Writes no log entry, because verifiers use neither.
--
-- KEYS 1 head
-- ARGV field, value pairs: name, prefix, bytes; value '' clears
-- Returns {'OK', previous name, prefix, bytes ('' = none)} | {'NOT_FOUND'}
local created, deleted, name, prefix, bytes =
  unpack(redis.call('HMGET', KEYS[1], 'c', 'deleted', 'name', 'prefix', 'bytes'))
if not created or deleted then return {'NOT_FOUND'} end
for i = 1, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return {'OK', name or '', prefix or '', bytes or ''}
