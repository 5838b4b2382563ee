#!lua
-- Changes an API's name and the defaults of its new keys. Writes no log entry, because verifiers use neither.
--
-- condition: the number of changes so far must equal it, '' = any  fields: field, value pairs: name, prefix, bytes; value '' clears
-- Returns {'OK', number of changes so far, previous name, prefix, bytes ('' = none)} | {'NOT_FOUND'} | {'CONFLICT', number of changes so far}
local created, deleted, name, prefix, bytes, changes =
  unpack(redis.call('HMGET', head, 'c', 'deleted', 'name', 'prefix', 'bytes', 'u'))
if not created or deleted then return {'NOT_FOUND'} end
changes = changes or '0'
if condition ~= '' and condition ~= changes then return {'CONFLICT', changes} end
if #fields > 0 then changes = redis.call('HINCRBY', head, 'u', 1) end
for i = 1, #fields, 2 do
  if fields[i + 1] == '' then
    redis.call('HDEL', head, fields[i])
  else
    redis.call('HSET', head, fields[i], fields[i + 1])
  end
end
return {'OK', changes, name or '', prefix or '', bytes or ''}
