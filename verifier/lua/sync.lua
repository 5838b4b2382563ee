#!lua flags=allow-oom
-- SYNC: proves that all this follower has applied is a prefix of the log, acknowledges it, brings what is
-- missing and may read one record in the same atomic step. Not flagged `no-writes`: a deposed primary must
-- not grant leases. An idle SYNC writes nothing.
--
-- KEYS 1 head  2 log  3 members, and for a fill 4 record  5 its long meta; or for one by its secret 4 pointer
-- ARGV 1 member  2 position  3 hash at it  4 most entries  5 most bytes of entries  6 nonce, and for a fill by a secret
--      7 how pointers to this API's keys begin  8 and 9 how records and long metas are named, up to the keyId
-- Returns {nonce, status, sequence, hash, lease ms, '1' when the API is deleted, entries, record, pointer}
--   status: OK | NOREG | DIVERGED | TRIMMED; entries: {sequence, hash, keyId, payload, …};
--   record: {} or {secret hash, enabled, expires, name, externalId, meta}
-- Or {nonce, 'ELSEWHERE', pointer or nil} without a SYNC, when the secret is of no key of this API
local head, log, members, record, long = unpack(KEYS)
local member, position, hash, most, bytes, nonce, own, records, metas = unpack(ARGV)

local pointer
if own then
  pointer = redis.call('GET', KEYS[4])
  if not pointer or string.sub(pointer, 1, #own) ~= own then return {nonce, 'ELSEWHERE', pointer} end
  -- Names that KEYS does not have: this is not for a Redis Cluster.
  local keyId = string.sub(pointer, #own + 1)
  record, long = records .. keyId, metas .. keyId
end

local score = redis.call('ZSCORE', members, member)
if not score or tonumber(score) < 0 then return {nonce, 'NOREG'} end
local s, h, L, deleted = unpack(redis.call('HMGET', head, 's', 'h', 'L', 'deleted'))
s = s or '0'
h = h or ''
local reply = {nonce, 'OK', s, h, L or '0', deleted and '1' or '0', {}, {}, pointer}

local pos = tonumber(position)
if pos ~= tonumber(s) or hash ~= h then
  if pos >= tonumber(s) then return {nonce, 'DIVERGED'} end
  if pos == 0 then
    local first = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
    if not first or first[1] ~= '1-0' then return {nonce, 'TRIMMED'} end
  else
    local last = redis.call('XRANGE', log, position .. '-0', position .. '-0')[1]
    if not last then return {nonce, 'TRIMMED'} end
    if last[2][2] ~= hash then return {nonce, 'DIVERGED'} end
  end
  local entries, size = reply[7], 0
  for _, entry in ipairs(redis.call('XRANGE', log, string.format('%.0f-0', pos + 1), '+', 'COUNT', most)) do
    local f = entry[2]
    size = size + #f[6] + 128
    if size > tonumber(bytes) and #entries > 0 then break end
    entries[#entries + 1] = string.match(entry[1], '^%d+')
    entries[#entries + 1] = f[2]
    entries[#entries + 1] = f[4]
    entries[#entries + 1] = f[6]
  end
end

if pos > tonumber(score) then redis.call('ZADD', members, 'XX', position, member) end

if record then
  local f = redis.call('HMGET', record, 'p', 'e', 'x', 'n', 'o', 'm', 'M')
  if f[1] then
    if f[7] then f[6] = redis.call('GET', long) end
    for i = 1, 6 do reply[8][i] = f[i] or '' end
  end
end
return reply
