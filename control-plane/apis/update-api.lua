#!lua
-- Changes an API's name and the defaults of its new keys. Writes no log entry, because verifiers use neither.
--
-- fields: field, value pairs: name, prefix, bytes; value '' clears
-- Returns {'OK', previous name, prefix, bytes ('' = none)} | {'NOT_FOUND'}
local created, deleted, name, prefix, bytes =
  unpack(redis.call('HMGET', head, 'c', 'deleted', 'name', 'prefix', 'bytes'))
if not created or deleted then return {'NOT_FOUND'} end
for i = 1, #fields, 2 do
  if fields[i + 1] == '' then
    redis.call('HDEL', head, fields[i])
  else
    redis.call('HSET', head, fields[i], fields[i + 1])
  end
end
return {'OK', name or '', prefix or '', bytes or ''}
