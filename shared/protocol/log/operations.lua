-- Remembers named changes of credits, so that a repeated call changes nothing: the latest of each key, for an hour. A name
-- that begins with ! has a Redis key of its own for a day, so that no other name pushes it out.
--
-- name: of the key's hash: name of a change → Unix ms, the change, and its answer
-- Returns two functions
local function operationsOf(name)
  local KEPT, KEPT_MS = 32, 3600000
  local function apart(id) return string.sub(id, 1, 1) == '!' and name .. ':' .. id end

  -- Returns nil if the name is unknown | false if it named a different change | the answer to the first call. Always writes if the
  -- name is known, so that a caller who waits for replicas also waits for the first call's change.
  local function answered(id, asked, now)
    local own = apart(id)
    local known = own and redis.call('GET', own) or not own and redis.call('HGET', name, id)
    if not known then return nil end
    local done = cjson.decode(known)
    if own then redis.call('SET', own, known, 'KEEPTTL')
    elseif tonumber(now) - done[1] > KEPT_MS then return nil
    else redis.call('HSET', name, id, known) end
    if done[2] ~= asked then return false end
    return done[3]
  end

  local function remember(id, asked, now, answer)
    local done = cjson.encode({tonumber(now), asked, answer})
    if apart(id) then
      redis.call('SET', apart(id), done, 'PX', 24 * KEPT_MS)
      return
    end
    redis.call('HSET', name, id, done)
    redis.call('PEXPIRE', name, KEPT_MS)
    if redis.call('HLEN', name) <= KEPT then return end
    local all, oldest, since = redis.call('HGETALL', name), nil, nil
    for i = 1, #all, 2 do
      local at = cjson.decode(all[i + 1])[1]
      if all[i] ~= id and (not since or at < since) then oldest, since = all[i], at end
    end
    redis.call('HDEL', name, oldest)
  end

  return answered, remember
end
