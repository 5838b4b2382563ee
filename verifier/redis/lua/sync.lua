#!lua flags=allow-oom
-- SYNC: proves that all this follower has applied is a prefix of the log, and the keys that it saw created a prefix of
-- those that are; acknowledges it, brings what is missing and may read one record in the same atomic step. Not flagged `no-writes`: a deposed primary must
-- not grant leases. An idle SYNC writes nothing.
--
-- KEYS 1 head  2 log  3 members  4 creations, and for a fill 5 record  6 its long meta; or for one by its secret 5 pointer
-- ARGV 1 member, as REGISTER has it  2 position  3 hash at it  4 mark of the last creation seen  5 most entries  6 most bytes of entries
--      7 nonce, and for a fill by a secret 8 how pointers to this API's keys begin  9 and 10 how records and long metas are named, up to the keyId
-- Returns {nonce, status, sequence, hash, lease ms, '1' when the API is deleted, mark, entries, record, pointer}
--   status: OK | NOREG | DIVERGED | TRIMMED; entries: {sequence, hash, keyId, payload, …};
--   record: {} or {secret hash, creation number, and the fields in this order}; where the key has credits,
--   the name of their pool stands behind the hash and a space
-- Or {nonce, 'ELSEWHERE', pointer or nil} without a SYNC, when the secret is of no key of this API
-- A key's fields, as shared/contract/key-record.ts orders them.
local FIELDS = {'e', 'x', 'n', 'o', 'm', 'E', 'l', 'L', 'P', 'R', 'A'}

-- include lease.lua

local head, log, members, creations, record, long = unpack(KEYS)
local member, position, hash, mark, most, bytes, nonce, own, records, metas = unpack(ARGV)

local pointer
if own then
  pointer = redis.call('GET', KEYS[5])
  if not pointer or string.sub(pointer, 1, #own) ~= own then return {nonce, 'ELSEWHERE', pointer} end
  -- Names that KEYS does not have: this is not for a Redis Cluster.
  local keyId = string.sub(pointer, #own + 1)
  record, long = records .. keyId, metas .. keyId
end

local score = tonumber(redis.call('ZSCORE', members, member) or -1)
if score < 0 then return {nonce, 'NOREG'} end
local s, h, L, deleted, n, g = unpack(redis.call('HMGET', head, 's', 'h', 'L', 'deleted', 'n', 'g'))
local needs = tonumber(string.match(s or '', '^(%d+):') or 1)
s = string.match(s or '0', '%d+$')
h = h or ''
if needs > tonumber(string.match(member, '^(%d%d?%d?)%.') or 1) then return {nonce, 'NOREG'} end
-- Nobody can have acknowledged what is not there yet.
if score > tonumber(s) then return {nonce, 'NOREG'} end
local last = g or (n or '0') .. '-'
local reply = {nonce, 'OK', s, h, leaseOf(head, L), deleted and '1' or '0', last, {}, {}, pointer}

if mark ~= last then
  local number, seen = string.match(mark, '^(%d+)%-(%x*)$')
  if tonumber(number) > tonumber(string.match(last, '^%d+')) then return {nonce, 'DIVERGED'} end
  -- Without any mark at the head, an older control plane creates keys: only their number is known.
  if number ~= '0' and (g or seen ~= '') then
    local creation = redis.call('XRANGE', creations, number .. '-0', number .. '-0')[1]
    if not creation then return {nonce, 'TRIMMED'} end
    if creation[2][2] ~= seen then return {nonce, 'DIVERGED'} end
  end
end

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
  local entries, size = reply[8], 0
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

-- A half beyond what it acknowledged says that this lease was granted further on in the log: see fence-close.lua.
local acknowledged = math.max(math.floor(score), pos)
if acknowledged < tonumber(s) then acknowledged = acknowledged + 0.5 end
if acknowledged ~= score then redis.call('ZADD', members, 'XX', string.format('%.1f', acknowledged), member) end

if record then
  local f = redis.call('HMGET', record, 'M', 'p', 'i', 'q', unpack(FIELDS))
  if f[2] then
    if f[1] then f[9] = redis.call('GET', long) end
    reply[9] = {f[4] and f[2] .. ' ' .. f[4] or f[2], f[3] or '0'}
    for i = 5, #f do reply[9][i - 2] = f[i] or '' end
  end
end
return reply
