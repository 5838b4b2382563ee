-- Writes one change of a key or an API: to its record, to the API's log and as a message.
--
-- The arguments and the returned value of `change`, and the script's head, log, index, members, channel, now, maxlen, longest and
-- base: see write-change.lua
--
-- FIELDS: the fields of a key, and AT: the place of each (LUA_FIELDS); a long m is stored apart.
-- latest: as `latestOf` returns it; key: as `keyOf` returns it; patch: new values of fields by their names, '' = none
local server = serverId()
local change

-- Reads the API's head: the latest entry of its log, the lease and the protocol of its followers, and whether and for how long
-- outsiders accept what they were lent. Returns nil if the API is deleted.
local function latestOf()
  local s, h, Lf, deleted, protocol, lends, outlives =
    unpack(redis.call('HMGET', head, 's', 'h', 'Lf', 'deleted', 'P', 'Tf', 'Wf'))
  if deleted then return nil end
  return {
    sequence = tonumber(s or 0), hash = h or '', lease = Lf or '0', protocol = protocol,
    lends = lends, outlives = lends and (outlives or '62000') or '',
  }
end

-- Returns a key's id and the names of its record and long meta, and of a key that is updated or deleted also what its record has;
-- `old` are the values of FIELDS.
local function keyOf(operation, keyId, record, long)
  local key = {id = keyId, record = record, long = long, old = {}}
  if operation ~= 'update' and operation ~= 'delete' then return key end
  local has = redis.call('HMGET', record, 'p', 'v', 'i', 'o', 'M', 'q', 'F', 'W', 'B', 'D', unpack(FIELDS))
  local apart
  key.secretHash, key.version, key.number, key.owner, apart, key.pool = unpack(has, 1, 6)
  key.predecessor, key.first, key.managedBy, key.drifted = unpack(has, 7, 10)
  key.version = key.version or '0'
  key.old = {unpack(has, 11)}
  if apart then key.old[AT.m] = redis.call('GET', long) end
  return key
end

-- Returns a refusal if the condition is not met, if what is to change is not there, or if what is to be created is.
local function unmet(operation, latest, key, condition)
  if operation == 'update' or operation == 'delete' then
    if not key.secretHash then return {'NOT_FOUND'} end
    local isMet = condition == '' or condition == key.version or condition == string.match(key.version, '^%d+')
    if not isMet and condition ~= 'of ' .. (key.managedBy or '') then return {'CONFLICT', key.version} end
  elseif redis.call('HEXISTS', head, 'c') == 0 then
    return {'NOT_FOUND'}
  elseif operation == 'create' then
    if redis.call('EXISTS', key.record) == 1 then return {'EXISTS'} end
  elseif condition ~= '' then
    local isMet = tonumber(condition) == latest.sequence
    if operation == 'api-deleted' then isMet = condition == 'of ' .. (redis.call('HGET', head, 'managed') or '') end
    if not isMet then return {'CONFLICT'} end
  end
end

-- Returns a refusal if a rate limit and a concurrency limit would have the same name: it belongs to one limit, of either kind.
local function nameTaken(key, patch)
  local limits, concurrency = patch.L or key.old[AT.L] or '', patch.C or key.old[AT.C] or ''
  if not (patch.L or patch.C) or limits == '' or concurrency == '' then return nil end
  local names = {}
  for _, limit in ipairs(cjson.decode(limits)) do names[limit.name] = true end
  for _, limit in ipairs(cjson.decode(concurrency)) do
    if names[limit.name] then return {'NAME_TAKEN', limit.name} end
  end
end

-- Returns the reply to a change that is written, now or by an earlier call.
local function replyOf(operation, latest, key, patch, sequence, hash, left, owed)
  local reply = {'OK', sequence, hash, latest.lease, key.version or '', left, owed, server, latest.outlives}
  for i, field in ipairs(FIELDS) do
    if patch[field] or operation == 'delete' then
      reply[#reply + 1] = field
      reply[#reply + 1] = key.old[i] or ''
    end
  end
  if patch.B then
    reply[#reply + 1] = 'B'
    reply[#reply + 1] = key.managedBy or ''
  end
  return reply
end

-- Gives the pool that replaces a key's pool to all other keys that share the old one. They come before the key, so that a follower
-- that has the key's change has theirs.
local function replacePool(key, asked, needs)
  local sharing = sharingOf()
  local join = '{"op":"join","id":"' .. (asked.op == 'set' and asked.id or '') .. '"}'
  for _, other in ipairs(sharing(base .. 'q:' .. key.pool)) do
    if other ~= key.id then
      change('update', other, base .. 'k:' .. other, base .. 'm:' .. other, '', needs, {'q', join})
    end
  end
end

-- Returns what the entry names: the hash of the key's secret, then if there are any the pool of its credits, the first key of its
-- rotations, and a digest of the credits' change: two different changes must not look the same in two histories.
local function namedIn(key, pool, digest)
  if not (digest or pool or key.first) then return key.secretHash end
  return key.secretHash .. ' ' .. (pool or '') .. ' ' .. (key.first or '') .. (digest and ' ' .. digest or '')
end

-- Returns what the log and the message say of a change: the whole new state of a record, or that followers must forget it.
local function payloadOf(operation, key, patch, named)
  if operation == 'delete' then return cjson.encode({'forget', named}) end
  if operation == 'api-deleted' then return cjson.encode({'api-deleted'}) end
  if operation == 'noop' then return '' end
  local state = {'set', named}
  for i, field in ipairs(FIELDS) do state[i + 2] = patch[field] or key.old[i] or '' end
  local payload = cjson.encode(state)
  if #payload <= tonumber(longest) then return payload end
  -- The digest of the state: equal hashes must mean equal records, also after a failover.
  return cjson.encode({'forget', named, redis.sha1hex(payload)})
end

-- Appends an entry to the log, makes it the latest, and returns its sequence and hash. While time is lent to outsiders, the entry also
-- has when, and for how long they accept what was lent after its end: nothing from before the entry is accepted one fence and this
-- time later.
local function append(latest, keyId, payload)
  local sequence = string.format('%.0f', latest.sequence + 1)
  local hash = redis.sha1hex(latest.hash .. '|' .. sequence .. '|' .. keyId .. '|' .. payload)
  local entry = {'h', hash, 'k', keyId, 'd', payload}
  if latest.lends then
    entry[7] = 'a'
    local time = redis.call('TIME')
    entry[8] = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
    entry[9], entry[10] = 'w', latest.outlives
  end
  redis.call('XADD', log, 'MAXLEN', '~', maxlen, sequence .. '-0', unpack(entry))
  redis.call('HSET', head, 's', sequence, 'h', hash)
  return sequence, hash
end

-- Sets the fields of a record and its version, and removes those that are cleared. `drifts`: others than the set that declares the
-- record change it, and not only its credits.
local function setFields(operation, key, patch, version, drifts)
  local set = {'HSET', key.record, operation == 'create' and 'c' or 'u', now, 'v', version}
  for field, value in pairs(patch) do
    if field == 'm' then
      redis.call('DEL', key.long)
      redis.call('HDEL', key.record, 'm', 'M')
      if #value > 64 then
        redis.call('SET', key.long, value)
        field, value = 'M', '1'
      end
    elseif value == '' then
      redis.call('HDEL', key.record, field)
    end
    if value ~= '' then
      set[#set + 1] = field
      set[#set + 1] = value
    end
  end
  if patch.B then redis.call('HDEL', key.record, 'D')
  elseif drifts and key.managedBy and not key.drifted then
    set[#set + 1] = 'D'
    set[#set + 1] = now
  end
  redis.call(unpack(set))
end

-- Brings the indexes of sets, keys, expiries and owners up to date with the new fields of a record.
local function changeIndexes(operation, key, patch, sequence)
  if patch.B and patch.B ~= key.managedBy then
    if key.managedBy then redis.call('ZREM', base .. 'by', key.managedBy .. '\0' .. key.id) end
    if patch.B ~= '' then redis.call('ZADD', base .. 'by', 0, patch.B .. '\0' .. key.id) end
  end
  if operation == 'create' then redis.call('ZADD', index, sequence, key.id) end
  if patch.x == '' then redis.call('ZREM', base .. 'due', key.id)
  elseif patch.x then redis.call('ZADD', base .. 'due', 0, key.id) end
  if patch.o and patch.o ~= key.owner then
    if key.owner then redis.call('ZREM', base .. 'o:' .. key.owner, key.id) end
    if patch.o ~= '' then redis.call('ZADD', base .. 'o:' .. patch.o, key.number, key.id) end
  end
end

-- Deletes a record, and takes it out of the indexes and out of those who share its credits.
local function deleteRecord(key)
  redis.call('DEL', key.record, key.long)
  local _, leave = sharingOf()
  if key.pool then leave(base .. 'q:' .. key.pool, key.id) end
  -- The deleted key may have replaced another key, which may now be rerolled again.
  if key.predecessor and redis.call('HGET', base .. 'k:' .. key.predecessor, 'T') == key.id then
    redis.call('HDEL', base .. 'k:' .. key.predecessor, 'T', 'Y')
  end
  redis.call('ZREM', index, key.id)
  if key.managedBy then redis.call('ZREM', base .. 'by', key.managedBy .. '\0' .. key.id) end
  if key.old[AT.x] then redis.call('ZREM', base .. 'due', key.id) end
  if key.owner then redis.call('ZREM', base .. 'o:' .. key.owner, key.id) end
end

-- Writes what the appended entry says, to the record or the head.
local function writeRecord(operation, key, patch, sequence, hash, drifts)
  if operation == 'update' or operation == 'create' then
    setFields(operation, key, patch, sequence .. '-' .. string.sub(hash, 1, 8), drifts)
    changeIndexes(operation, key, patch, sequence)
  elseif operation == 'delete' then
    deleteRecord(key)
  elseif operation == 'api-deleted' then
    redis.call('HSET', head, 'deleted', now)
  end
  -- Only log entries change the number of identities, so a follower that is at this entry knows whether there are
  -- any.
  if string.sub(key.id, 1, 9) == 'identity_' and operation ~= 'update' then
    redis.call('HSET', head, 'ids', redis.call('ZCARD', index))
  end
end

-- Makes one change: refuses it before the first write, or appends its entry, writes it, publishes it, and replies.
function change(operation, keyId, record, long, condition, needs, fields)
  local latest = latestOf()
  if not latest then return {'NOT_FOUND'} end
  if operation == 'delete-again' then
    operation = redis.call('HEXISTS', record, 'p') == 1 and 'delete' or 'noop'
    if operation == 'noop' then condition = '' end
  end
  local key, patch = keyOf(operation, keyId, record, long), {}
  for i = 1, #fields, 2 do patch[fields[i]] = fields[i + 1] end
  local refusal = unmet(operation, latest, key, condition) or nameTaken(key, patch)
  if refusal then return refusal end
  if operation == 'create' then key.secretHash = patch.p end

  local asked, digest = patch.q and cjson.decode(patch.q), patch.q and redis.sha1hex(patch.q)
  local answered, remember = operationsOf(base .. 'ops:' .. keyId)
  local name = asked and asked.operation
  local what = name and asked.op .. ' ' .. tostring(asked.value)
  if name then
    local answer = answered(name, what, now)
    if answer == false then return {'REUSED'} end
    if answer then return replyOf(operation, latest, key, patch, unpack(answer)) end
  end
  local replaces = asked and (asked.op == 'set' or asked.op == 'none')
  if asked and not key.pool and not replaces then return {'UNLIMITED'} end
  refusal = gate(head, members, latest.protocol, tonumber(needs))
  if refusal then return refusal end
  if replaces and key.pool then
    replacePool(key, asked, needs)
    latest = latestOf()
  end

  -- Append the log entry, which holds the whole new state, before the record is written.
  local left, owed = '', ''
  if asked then patch.q, left, owed = changeCredits(base, key.pool, asked, keyId, latest.sequence + 1) end
  local payload = payloadOf(operation, key, patch, namedIn(key, patch.q or key.pool, digest))
  local sequence, hash = append(latest, keyId, payload)
  writeRecord(operation, key, patch, sequence, hash, #fields > (asked and 2 or 0))
  redis.pcall('PUBLISH', channel, sequence .. '|' .. latest.hash .. '|' .. hash .. '|' .. keyId .. '|' .. payload)
  if name then remember(name, what, now, {sequence, hash, left, owed}) end
  return replyOf(operation, latest, key, patch, sequence, hash, left, owed)
end
