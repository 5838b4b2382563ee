#!lua flags=allow-oom
-- Tells how far a change has come. Not flagged `no-writes`, so that a deposed primary refuses to answer.
--
-- record: the key's
-- sequence, hash, keyId: of the change; hash '' = unknown, then keyId identifies it
-- durable: '1' = the caller knows that it is on all replicas; limit: how many laggards to name
-- later, laterHash: a later change that the log must hold too; laterHash '' = none
-- Returns {'LOST'} if the history lacks the change, or the later change,
--         else {'INTACT', or 'TRIMMED' if the log no longer reaches back to the change, so that nothing is known; followers,
--         laggards, Lf, highest sequence known to be on all replicas, ms since the change, less the time for which outsiders accept
--         what they were lent after its end, by the clock of Redis, if anything from before it may be lent, else '', version of the
--         record, or '', name of a laggard, …}

local s, Lf, d, lends = unpack(redis.call('HMGET', head, 's', 'Lf', 'd', 'Tf'))
s = s or '0'
if tonumber(s) < tonumber(sequence) then return {'LOST'} end
local entry = redis.call('XRANGE', log, sequence .. '-0', sequence .. '-0')[1]
if entry then
  -- fields: h, hash, k, keyId, d, payload
  if hash ~= '' and entry[2][2] ~= hash then return {'LOST'} end
  if hash == '' and entry[2][4] ~= keyId then return {'LOST'} end
end
if laterHash ~= '' then
  local found = redis.call('XRANGE', log, later .. '-0', later .. '-0')[1]
  if not found or found[2][2] ~= laterHash then return {'LOST'} end
end
-- Only if the entry exists: this may be a deposed primary that trimmed its own log past that sequence.
if entry and durable == '1' and tonumber(d or 0) < tonumber(sequence) then
  redis.call('HSET', head, 'd', sequence)
  d = sequence
end

-- A score above the head acknowledges nothing real, so that follower is a laggard as well.
local behind = {{'-inf', '(' .. sequence}, {'(' .. s, '+inf'}}
local laggards, names = 0, {}
for _, range in ipairs(behind) do
  local count = redis.call('ZCOUNT', members, unpack(range))
  laggards = laggards + count
  if count > 0 and #names < tonumber(limit) then
    local from, to = unpack(range)
    for _, name in ipairs(redis.call('ZRANGEBYSCORE', members, from, to, 'LIMIT', 0, limit - #names)) do
      names[#names + 1] = name
    end
  end
end
local age = ''
if lends then
  -- Of a change that the log has no more, the oldest entry is younger.
  local known = entry or redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
  local at = known and known[2][8] and known[2][8] + (known[2][10] or 62000)
  local time = redis.call('TIME')
  if at then age = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) - at) end
end
local version = redis.call('HMGET', record, 'v')[1] or ''
return {entry and 'INTACT' or 'TRIMMED', redis.call('ZCARD', members), laggards, Lf or '0', d or '0', age, version, unpack(names)}
