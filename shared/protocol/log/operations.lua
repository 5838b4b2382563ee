-- Remembers named changes of credits, so that a repeated call changes nothing: the latest of each key, for an hour.
--
-- name: of the key's hash: name of a change → Unix ms, the change, and its answer
-- Returns two functions
local function operationsOf(name)
  local KEPT, KEPT_MS = 32, 3600000

  -- Returns nil if the name is unknown | false if it named a different change | the answer to the first call. Always writes if the
  -- name is known, so that a caller who waits for replicas also waits for the first call's change.
  local function answered(id, asked, now)
    local known = redis.call('HGET', name, id)
    if not known then return nil end
    local done = cjson.decode(known)
    if tonumber(now) - done[1] > KEPT_MS then return nil end
    redis.call('HSET', name, id, known)
    if done[2] ~= asked then return false end
    return done[3]
  end

  local function remember(id, asked, now, answer)
    redis.call('HSET', name, id, cjson.encode({tonumber(now), asked, answer}))
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
