#!lua
-- Creates a key's record, after its two pointers exist. Writes no log entry, because no older state of the key can be
-- cached. But a cached state must not outlive the key when a failover or a restored backup takes the key away. So
-- every creation leaves a mark (creation.lua).
--
-- head, index, record, long: its long meta  owners: owner index (the record again if the key has no owner)  creations, members
-- keyId  now: Unix ms  auto: '1' = create the API if it does not exist  lease: ms  meta  owner: external id
-- foreign: '1' = the secret has a foreign format, or the digest by which such a key is imported; '0' = neither  kept: creations to keep  content: digest of everything that the key is created with
-- needs: protocol that followers need for the key
-- defaults: the API's default prefix and length that the secret was made with, '*' = it used no default
-- credits: JSON {id: unique, op: set, …} as write-change.lua describes it; '' = unlimited  base: the beginning of the API's other keys
-- fields: field, value pairs of the record
-- Returns {'OK', when the key expires, if its API's default says so, else ''}
--         | {'TOO_LONG', the longest lifetime of the API, ms}: the key would live longer
--         | 'NO_API' | 'DELETED' (the API is being swept) | 'EXISTS'
--         | {'TOO_OLD', the protocol that it needs, number of followers that are too old, name of each of the first, …}
--         | {'OTHER_DEFAULTS', current prefix and length}: the defaults changed; make another secret
-- include require-writes.lua
-- include gate.lua
-- include ../../metering/plug.lua
-- include creation.lua
-- include lifetime.lua

requireWrites(head)
local created, deleted, protocol, prefix, bytes, longest, usual, kinds =
  unpack(redis.call('HMGET', head, 'c', 'deleted', 'P', 'prefix', 'bytes', 'longest', 'usual', 'foreign'))
if deleted then return 'DELETED' end
if not created and auto ~= '1' then return 'NO_API' end
local present = (prefix or '') .. ' ' .. (bytes or '')
if defaults ~= '*' and defaults ~= present then return {'OTHER_DEFAULTS', present} end
if redis.call('EXISTS', record) == 1 then return 'EXISTS' end
local expires, managedBy
for i = 1, #fields, 2 do
  if fields[i] == 'x' then expires = fields[i + 1]
  elseif fields[i] == 'B' then managedBy = fields[i + 1] end
end
local given = ''
if usual and not expires then
  given = string.format('%.0f', now + usual)
  expires, fields[#fields + 1], fields[#fields + 2] = given, 'x', given
  content = content .. ' ' .. given
end
local refusal = tooLong(longest, now, expires) or gate(head, members, protocol, tonumber(needs))
if refusal then return refusal end
if not created then redis.call('HSET', head, 'c', now, 'L', lease, 'Lf', lease) end

local number = addCreation(head, creations, kept, content)
redis.call('HSET', record, 'i', number, unpack(fields))
if credits ~= '' then redis.call('HSET', record, 'q', (changeCredits(base, nil, cjson.decode(credits), keyId))) end
if owner ~= '' then
  redis.call('HSET', record, 'o', owner)
  redis.call('ZADD', owners, number, keyId)
end
if #meta > 64 then
  redis.call('SET', long, meta)
  redis.call('HSET', record, 'M', '1')
elseif meta ~= '' then
  redis.call('HSET', record, 'm', meta)
end
redis.call('ZADD', index, number, keyId)
if expires then redis.call('ZADD', base .. 'due', 0, keyId) end
if managedBy then redis.call('ZADD', base .. 'by', 0, managedBy .. '\0' .. keyId) end
kinds = kinds or ''
if foreign ~= '0' and not string.find(' ' .. kinds .. ' ', ' ' .. foreign .. ' ', 1, true) then
  redis.call('HSET', head, 'foreign', kinds == '' and foreign or kinds .. ' ' .. foreign)
end
return {'OK', given}
