#!lua
-- Keeps the latest refusals of the latest refused keys of an API, and the latest ones of all its keys. Uses only the commands that deploy/redis/users.acl
-- allows a verifier for usage. A report that is repeated doubles its refusals; readers tell them by their request ids.
--
-- keys: the refused keys; requests: keys by request id; names: of the refusals of one key each; prefix: their beginning
-- latest: the refusals of the API in the order of the reports, each after its number and its key
-- keysKept: how many keys; kept: how many refusals of each; latestKept: how many of the API; seconds: for how long
-- refusals: for each key its id, the number of its refusals, and for each of these the request id and the JSON
-- Returns OK

-- The request id in front of a refusal is written with it, so that it is forgotten with it.
local function forget(refusal)
  local id = refusal and string.match(refusal, '^(%S+) ')
  if id then redis.call('HDEL', requests, id) end
end

-- Makes the key one of those that are kept, in place of the oldest of them.
local function enter(keyId)
  if redis.call('HMGET', keys, '=' .. keyId)[1] then return end
  local slot = redis.call('HINCRBY', keys, '#', 1) % tonumber(keysKept)
  local oldest = redis.call('HMGET', keys, slot)[1]
  if oldest then
    local slots = {}
    for i = 0, kept - 1 do slots[i + 1] = i end
    for _, refusal in ipairs(redis.call('HMGET', prefix .. oldest, unpack(slots))) do forget(refusal) end
    redis.call('EXPIRE', prefix .. oldest, 0)
    redis.call('HDEL', keys, '=' .. oldest)
  end
  redis.call('HSET', keys, slot, keyId, '=' .. keyId, slot)
end

local at = 1
for _, name in ipairs(names) do
  local keyId, count = unpack(refusals, at, at + 1)
  at = at + 2
  enter(keyId)
  local before = redis.call('HINCRBY', latest, '#', count) - count
  for i = 1, count do
    local id, refusal = unpack(refusals, at, at + 1)
    at = at + 2
    local slot = redis.call('HINCRBY', name, '#', 1) % tonumber(kept)
    forget(redis.call('HMGET', name, slot)[1])
    redis.call('HSET', name, slot, id .. ' ' .. refusal)
    if id ~= '' then redis.call('HSET', requests, id, keyId) end
    redis.call('HSET', latest, (before + i) % tonumber(latestKept), before + i .. ' ' .. keyId .. ' ' .. refusal)
  end
  redis.call('EXPIRE', name, seconds)
end
redis.call('EXPIRE', keys, seconds)
redis.call('EXPIRE', requests, seconds)
redis.call('EXPIRE', latest, seconds)
return 'OK'
