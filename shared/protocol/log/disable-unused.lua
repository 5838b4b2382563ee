#!lua flags=allow-oom
-- Disables a key that nobody used, unless it was of use meanwhile or the rule changed, and notes it for the audit log.
--
-- unused: keys that were disabled and are not in the audit log yet  rule: about unused keys, ms  last: last use that is known, Unix ms
-- all others: see write-change.lua
-- Returns {'OK', sequence} | {'USED'} | {'NOT_FOUND'}: its API is deleted
-- include require-writes.lua
-- include gate.lua
-- include server.lua
-- include ../../metering/plug.lua
-- include operations.lua
-- include change.lua
-- include last-use.lua
requireWrites(head)
local present, since = unpack(redis.call('HMGET', head, 'unused', 'unusedSince'))
if present ~= rule or redis.call('HGET', record, 'e') ~= '1' or lastUse(base, keyId, since) > tonumber(last) then
  return {'USED'}
end
local written = change('update', keyId, record, long, '', '1', {'e', '0'})
if written[1] ~= 'OK' then return written end
redis.call('HSET', unused, keyId, written[2] .. ' ' .. now .. ' ' .. last .. ' ' .. rule)
return {'OK', written[2]}
