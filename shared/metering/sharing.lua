-- Keeps the list of keys that share a pool of credits. The pool's field `k` names them, except in a pool of an earlier
-- release that always had one key; the pool lives as long as any of them.
--
-- Returns two functions that take the name of a pool
local function sharingOf()
  -- Returns the ids of the keys in `k`
  local function of(pool)
    local keyIds = {}
    for keyId in string.gmatch(redis.call('HMGET', pool, 'k')[1] or '', '%S+') do keyIds[#keyIds + 1] = keyId end
    return keyIds
  end

  local function leave(pool, keyId)
    local others = {}
    for _, other in ipairs(of(pool)) do
      if other ~= keyId then others[#others + 1] = other end
    end
    if #others == 0 then redis.call('DEL', pool)
    else redis.call('HSET', pool, 'k', table.concat(others, ' ')) end
  end

  return of, leave
end
