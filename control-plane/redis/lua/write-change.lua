#!lua flags=allow-oom
-- WRITE: changes a key or an API and appends the change to the API's log, atomically. The only way a change
-- reaches verifiers. No `no-writes` flag: a deposed primary refuses it (NOREPLICAS, READONLY) even when it
-- would write nothing. allow-oom: a key can be disabled on a Redis that is full.
--
-- KEYS 1 head  2 log  3 index  4 record  5 long meta  6 members      (4 and 5 repeat the head for `noop`, `api-deleted`)
-- ARGV 1 operation: update | delete | noop | api-deleted
--      2 keyId ('' for noop and api-deleted)   3 channel   4 now, Unix ms
--      5 log length to keep                    6 longest payload, bytes
--      7 condition: the record's version (update, delete) or the head's sequence (noop) must equal it, '' = any
--      8 owner-index prefix
--      9 protocol that followers need for it  10… field, value pairs to set; value '' clears
-- Returns {'OK', sequence, hash, Lf, previous version, and what each field held before}
--         | {'NOT_FOUND'} | {'CONFLICT'} | {'TOO_OLD', number of followers that are too old, name of each of the first, …}
-- A key's fields, as shared/key-record.ts orders them; m may lie apart.
local FIELDS = {'e', 'x', 'n', 'o', 'm', 'E'}
-- include gate.lua

local head, log, index, record, long, members = unpack(KEYS)
local operation, keyId, channel, now, maxlen, longest, condition, owners, needs = unpack(ARGV)

local before, h, Lf, deleted = unpack(redis.call('HMGET', head, 's', 'h', 'Lf', 'deleted'))
if deleted then return {'NOT_FOUND'} end
local s = tonumber(string.match(before or '0', '%d+$'))
h = h or ''

local secretHash, version, number, owner, apart
local old = {}
if operation == 'update' or operation == 'delete' then
  secretHash, version, number, owner, apart = unpack(redis.call('HMGET', record, 'p', 'v', 'i', 'o', 'M'))
  if not secretHash then return {'NOT_FOUND'} end
  version = version or '0'
  if condition ~= '' and condition ~= version then return {'CONFLICT'} end
  old = redis.call('HMGET', record, unpack(FIELDS))
  if apart then old[5] = redis.call('GET', long) end
elseif redis.call('HEXISTS', head, 'c') == 0 then
  return {'NOT_FOUND'}
elseif condition ~= '' and tonumber(condition) ~= s then
  return {'CONFLICT'}
end
local prefix, refusal = gate(head, members, before, tonumber(needs))
if refusal then return refusal end

-- The record after the change: the log entry, appended first, holds the whole new state.
local change = {}
for i = 10, #ARGV, 2 do change[ARGV[i]] = ARGV[i + 1] end
local payload = ''
if operation == 'update' then
  -- In an API that needs more than the first protocol as `set:2` and so on, which nobody takes for less.
  local state = {prefix == '' and 'set' or 'set:' .. string.match(prefix, '%d+'), secretHash}
  for i, field in ipairs(FIELDS) do state[i + 2] = change[field] or old[i] or '' end
  payload = cjson.encode(state)
  if #payload > tonumber(longest) then
    -- With a digest of the state: equal hashes must mean equal records, also after a failover.
    payload = cjson.encode({'forget', secretHash, redis.sha1hex(payload)})
  end
elseif operation == 'delete' then
  payload = cjson.encode({'forget', secretHash})
elseif operation == 'api-deleted' then
  payload = cjson.encode({'api-deleted'})
end

local sequence = string.format('%.0f', s + 1)
local hash = redis.sha1hex(h .. '|' .. sequence .. '|' .. keyId .. '|' .. payload)
redis.call('XADD', log, 'MAXLEN', '~', maxlen, sequence .. '-0', 'h', hash, 'k', keyId, 'd', payload)
redis.call('HSET', head, 's', prefix .. sequence, 'h', hash)

if operation == 'update' then
  for field, value in pairs(change) do
    if field == 'm' then
      redis.call('DEL', long)
      redis.call('HDEL', record, 'm', 'M')
      if #value > 64 then
        redis.call('SET', long, value)
        redis.call('HSET', record, 'M', '1')
      elseif value ~= '' then
        redis.call('HSET', record, 'm', value)
      end
    elseif value == '' then
      redis.call('HDEL', record, field)
    else
      redis.call('HSET', record, field, value)
    end
  end
  if change.o and change.o ~= owner then
    if owner then redis.call('ZREM', owners .. owner, keyId) end
    if change.o ~= '' then redis.call('ZADD', owners .. change.o, number, keyId) end
  end
  redis.call('HSET', record, 'u', now, 'v', sequence .. '-' .. string.sub(hash, 1, 8))
elseif operation == 'delete' then
  redis.call('DEL', record, long)
  redis.call('ZREM', index, keyId)
  if owner then redis.call('ZREM', owners .. owner, keyId) end
elseif operation == 'api-deleted' then
  redis.call('HSET', head, 'deleted', now)
end

redis.pcall('PUBLISH', channel, sequence .. '|' .. h .. '|' .. hash .. '|' .. keyId .. '|' .. payload)
local reply = {'OK', sequence, hash, Lf or '0', version or ''}
for i = 1, #FIELDS do reply[i + 5] = old[i] or '' end
return reply
