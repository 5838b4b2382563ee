#!lua flags=allow-oom
-- SYNC: checks that the changes a follower has applied are a prefix of the log, and the creations it has seen a prefix of
-- all creations. Acknowledges the follower's position, returns the entries that it lacks, and may read one record in the
-- same atomic step. It is not flagged `no-writes`, because a deposed primary must not grant leases. An idle SYNC writes
-- nothing.
--
-- member: as in REGISTER; position, hash: the last change that it applied; mark: of the last creation that it has seen
-- most: maximum number of entries; bytes: of these
-- to read a record by its id: place: its name; long: of its long meta
-- to read a record by its secret: place: the pointer; own: the beginning of pointers to this API's keys; records, metas: the
--   names of records and of long metas, each without the keyId at the end
-- Returns {status, nonce, sequence, hash, lease ms, '1' if the API is deleted, mark, entries, record,
--   Unix ms by the clock of Redis if time may be lent to outsiders, else '', to whom, JSON, '' = the API's id, '1' if an entry that
--   the follower had not acknowledged lacks its time, so that its writer does not wait for outsiders, pointer}
--   status: OK | NOREG | DIVERGED | TRIMMED | REFUSED, as of REGISTER
--   entries: {sequence, hash, keyId, payload, …}
--   record: {} or {secret hash, creation number, and the FIELDS of a key (LUA_FIELDS)}; the secret hash is followed by the name of
--   the pool of credits and the first key of the rotations, if the key has either
-- Or {'ELSEWHERE', nonce, pointer or nil} without a SYNC, if the secret belongs to no key of this API

-- include lease.lua
-- include ../history/history.lua
-- include record.lua

local record, pointer = place, nil
if own then
  pointer = redis.call('GET', place)
  if not pointer or string.sub(pointer, 1, #own) ~= own then return {'ELSEWHERE', nonce, pointer} end
  -- The names of keys are not given, so this branch does not work in a Redis Cluster.
  local keyId = string.sub(pointer, #own + 1)
  record, long = records .. keyId, metas .. keyId
end

local score = tonumber(redis.call('ZSCORE', members, member) or -1)
local s, h, L, deleted, g, needs, refused, lends, audiences =
  unpack(redis.call('HMGET', head, 's', 'h', 'L', 'deleted', 'g', 'P', 'X', 'T', 'aud'))
s, h = s or '0', h or ''
if refused then return {'REFUSED', nonce} end
-- It registered after this history was saved, and has seen what it lacks.
if score < 0 then return {tonumber(position) > tonumber(s) and 'DIVERGED' or 'NOREG', nonce} end
if tonumber(needs or 1) > tonumber(string.match(member, '^%d+') or 1) then return {'NOREG', nonce} end
-- A follower cannot have acknowledged a change that does not exist, so this is not its history.
if score > tonumber(s) then return {'NOREG', nonce} end
local last = g or '0-'
local reply = {'OK', nonce, s, h, leaseOf(head, L), deleted and '1' or '0', last, {}, {}, '', audiences or '', '', pointer}
if lends then
  local time = redis.call('TIME')
  reply[10] = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  if score < tonumber(s) then
    local from = string.format('%.0f-0', math.floor(score) + 1)
    for _, entry in ipairs(redis.call('XRANGE', log, from, '+', 'COUNT', most)) do
      if not entry[2][8] then reply[12] = '1' end
    end
  end
end

local fault = differs(s, h, last)
if fault then return {fault, nonce} end
local pos = tonumber(position)
if pos < tonumber(s) then
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

-- A score of one half above the acknowledged position means that the lease was granted when the log had gone further; see
-- fence-close.lua.
local acknowledged = math.max(math.floor(score), pos)
if acknowledged < tonumber(s) then acknowledged = acknowledged + 0.5 end
if acknowledged ~= score then redis.call('ZADD', members, 'XX', string.format('%.1f', acknowledged), member) end

if record then reply[9] = recordAt(record, long) end
return reply
