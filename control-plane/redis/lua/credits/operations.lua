-- Changes of credits that were named, so that one which is sent again is not made again: the latest of each key, for an hour.
--
-- name: of the hash of a key: what names a change → Unix ms, what it was, and what was answered
-- Returns two functions
local function operationsOf(name)
  local KEPT, KEPT_MS = 32, 3600000

  -- Returns nothing where there is no such change | false where it was another one | what was answered. Writes in any case, so that
  -- who waits for replicas waits for the change that was made before.
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
