-- Writes one change of a key or an API: to its record, to the API's log and as a message.
--
-- The arguments, the returned value, and the script's head, log, index, members, channel, now, maxlen, longest and base: see
-- write-change.lua
--
-- FIELDS: the fields of a key, and AT: the place of each (LUA_FIELDS); a long m is stored apart.
local server = serverId()
local function change(operation, keyId, record, long, condition, needs, fields)
  local s, h, Lf, deleted, protocol, lends, outlives =
    unpack(redis.call('HMGET', head, 's', 'h', 'Lf', 'deleted', 'P', 'Tf', 'Wf'))
  outlives = lends and (outlives or '62000') or ''
  if deleted then return {'NOT_FOUND'} end
  s, h = tonumber(s or 0), h or ''

  local isRepeated = operation == 'delete-again'
  if isRepeated then operation = redis.call('HEXISTS', record, 'p') == 1 and 'delete' or 'noop' end
  local secretHash, version, number, owner, apart, pool, predecessor, first, managedBy, drifted
  local old = {}
  if operation == 'update' or operation == 'delete' then
    local found = redis.call('HMGET', record, 'p', 'v', 'i', 'o', 'M', 'q', 'F', 'W', 'B', 'D', unpack(FIELDS))
    secretHash, version, number, owner, apart, pool, predecessor, first, managedBy, drifted = unpack(found)
    if not secretHash then return {'NOT_FOUND'} end
    version = version or '0'
    local isMet = condition == '' or condition == version or condition == string.match(version, '^%d+')
    if not isMet and condition ~= 'of ' .. (managedBy or '') then return {'CONFLICT', version} end
    old = {unpack(found, 11)}
    if apart then old[AT.m] = redis.call('GET', long) end
  elseif redis.call('HEXISTS', head, 'c') == 0 then
    return {'NOT_FOUND'}
  elseif operation == 'create' then
    if redis.call('EXISTS', record) == 1 then return {'EXISTS'} end
  elseif condition ~= '' and not isRepeated then
    local isMet = tonumber(condition) == s
    if operation == 'api-deleted' then isMet = condition == 'of ' .. (redis.call('HGET', head, 'managed') or '') end
    if not isMet then return {'CONFLICT'} end
  end
  local patch = {}
  for i = 1, #fields, 2 do patch[fields[i]] = fields[i + 1] end
  if operation == 'create' then secretHash = patch.p end
  -- A name belongs to one limit, of either kind.
  local limits, concurrency = patch.L or old[AT.L] or '', patch.C or old[AT.C] or ''
  if (patch.L or patch.C) and limits ~= '' and concurrency ~= '' then
    local names = {}
    for _, limit in ipairs(cjson.decode(limits)) do names[limit.name] = true end
    for _, limit in ipairs(cjson.decode(concurrency)) do
      if names[limit.name] then return {'NAME_TAKEN', limit.name} end
    end
  end
  local done = patch.q
  local asked = done and cjson.decode(done)
  local function told(sequence, hash, left, owed)
    local reply = {'OK', sequence, hash, Lf or '0', version or '', left, owed, server, outlives}
    for i, field in ipairs(FIELDS) do
      if patch[field] or operation == 'delete' then
        reply[#reply + 1] = field
        reply[#reply + 1] = old[i] or ''
      end
    end
    if patch.B then
      reply[#reply + 1] = 'B'
      reply[#reply + 1] = managedBy or ''
    end
    return reply
  end
  local answered, remember = operationsOf(base .. 'ops:' .. keyId)
  local name = asked and asked.operation
  local what = name and asked.op .. ' ' .. tostring(asked.value)
  if name then
    local answer = answered(name, what, now)
    if answer == false then return {'REUSED'} end
    if answer then return told(unpack(answer)) end
  end
  if asked and not pool and asked.op ~= 'set' and asked.op ~= 'none' then return {'UNLIMITED'} end
  local refusal = gate(head, members, protocol, tonumber(needs))
  if refusal then return refusal end
  local sharing, leave = sharingOf()

  -- A pool is replaced for all keys that share it. The other keys come first, so that a follower that has this change
  -- has theirs.
  if asked and pool and (asked.op == 'set' or asked.op == 'none') then
    local join = '{"op":"join","id":"' .. (asked.op == 'set' and asked.id or '') .. '"}'
    for _, other in ipairs(sharing(base .. 'q:' .. pool)) do
      if other ~= keyId then
        change('update', other, base .. 'k:' .. other, base .. 'm:' .. other, '', needs, {'q', join})
      end
    end
    s, h = unpack(redis.call('HMGET', head, 's', 'h'))
    s, h = tonumber(s or 0), h or ''
  end

  -- Append the log entry, which holds the whole new state, before the record is written. The pool of the credits, the
  -- first key of the rotations and a digest of the credits' change follow the secret's hash: two different changes must
  -- not look the same in two histories.
  local named, left, owed = secretHash, '', ''
  if asked then
    patch.q, left, owed = changeCredits(base, pool, asked, keyId, s + 1)
    named = secretHash .. ' ' .. (patch.q or pool or '') .. ' ' .. (first or '') .. ' ' .. redis.sha1hex(done)
  elseif pool or first then named = secretHash .. ' ' .. (pool or '') .. ' ' .. (first or '') end
  local payload = ''
  local isState = operation == 'update' or operation == 'create'
  if isState then
    local state = {'set', named}
    for i, field in ipairs(FIELDS) do state[i + 2] = patch[field] or old[i] or '' end
    payload = cjson.encode(state)
    if #payload > tonumber(longest) then
      -- The digest of the state: equal hashes must mean equal records, also after a failover.
      payload = cjson.encode({'forget', named, redis.sha1hex(payload)})
    end
  elseif operation == 'delete' then
    payload = cjson.encode({'forget', named})
  elseif operation == 'api-deleted' then
    payload = cjson.encode({'api-deleted'})
  end

  local sequence = string.format('%.0f', s + 1)
  local hash = redis.sha1hex(h .. '|' .. sequence .. '|' .. keyId .. '|' .. payload)
  -- While time is lent to outsiders, also when, and for how long they accept what was lent after its end: nothing from before the
  -- entry is accepted one fence and this time later.
  local entry = {'h', hash, 'k', keyId, 'd', payload}
  if lends then
    entry[7] = 'a'
    local time = redis.call('TIME')
    entry[8] = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
    entry[9], entry[10] = 'w', outlives
  end
  redis.call('XADD', log, 'MAXLEN', '~', maxlen, sequence .. '-0', unpack(entry))
  redis.call('HSET', head, 's', sequence, 'h', hash)

  if isState then
    local set = {'HSET', record, operation == 'create' and 'c' or 'u', now, 'v', sequence .. '-' .. string.sub(hash, 1, 8)}
    for field, value in pairs(patch) do
      if field == 'm' then
        redis.call('DEL', long)
        redis.call('HDEL', record, 'm', 'M')
        if #value > 64 then
          redis.call('SET', long, value)
          field, value = 'M', '1'
        end
      elseif value == '' then
        redis.call('HDEL', record, field)
      end
      if value ~= '' then
        set[#set + 1] = field
        set[#set + 1] = value
      end
    end
    -- A change by others than the set that declares the record; credits are to change.
    if patch.B then redis.call('HDEL', record, 'D')
    elseif managedBy and not drifted and #fields > (asked and 2 or 0) then
      set[#set + 1] = 'D'
      set[#set + 1] = now
    end
    redis.call(unpack(set))
    if patch.B and patch.B ~= managedBy then
      if managedBy then redis.call('ZREM', base .. 'by', managedBy .. '\0' .. keyId) end
      if patch.B ~= '' then redis.call('ZADD', base .. 'by', 0, patch.B .. '\0' .. keyId) end
    end
    if operation == 'create' then redis.call('ZADD', index, sequence, keyId) end
    if patch.x == '' then redis.call('ZREM', base .. 'due', keyId)
    elseif patch.x then redis.call('ZADD', base .. 'due', 0, keyId) end
    if patch.o and patch.o ~= owner then
      if owner then redis.call('ZREM', base .. 'o:' .. owner, keyId) end
      if patch.o ~= '' then redis.call('ZADD', base .. 'o:' .. patch.o, number, keyId) end
    end
  elseif operation == 'delete' then
    redis.call('DEL', record, long)
    if pool then leave(base .. 'q:' .. pool, keyId) end
    -- The deleted key may have replaced another key, which may now be rerolled again.
    if predecessor and redis.call('HGET', base .. 'k:' .. predecessor, 'T') == keyId then
      redis.call('HDEL', base .. 'k:' .. predecessor, 'T', 'Y')
    end
    redis.call('ZREM', index, keyId)
    if managedBy then redis.call('ZREM', base .. 'by', managedBy .. '\0' .. keyId) end
    if old[AT.x] then redis.call('ZREM', base .. 'due', keyId) end
    if owner then redis.call('ZREM', base .. 'o:' .. owner, keyId) end
  elseif operation == 'api-deleted' then
    redis.call('HSET', head, 'deleted', now)
  end

  -- Only log entries change the number of identities, so a follower that is at this entry knows whether there are
  -- any.
  if string.sub(keyId, 1, 9) == 'identity_' and operation ~= 'update' then
    redis.call('HSET', head, 'ids', redis.call('ZCARD', index))
  end

  redis.pcall('PUBLISH', channel, sequence .. '|' .. h .. '|' .. hash .. '|' .. keyId .. '|' .. payload)
  if name then remember(name, what, now, {sequence, hash, left, owed}) end
  return told(sequence, hash, left, owed)
end
