#!lua
-- Keeps the latest refusals of the latest refused keys of an API. Uses only the commands that deploy/redis/users.acl
-- allows a verifier for usage. A report that is repeated doubles its refusals; readers tell them by their request ids.
--
-- KEYS 1 refused keys  2 keys by request id  3… refusals of one key each
-- ARGV 1 beginning of the names from 3 on  2 keys kept  3 refusals of a key kept  4 seconds
--      then for each key its id, the number of its refusals, and for each of these the request id and the JSON
-- Returns OK
local keys, requests = KEYS[1], KEYS[2]
local prefix, keysKept, kept, seconds = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

-- The request id in front of a refusal is written with it, so that it is forgotten with it.
local function forget(refusal)
  local id = refusal and string.match(refusal, '^(%S+) ')
  if id then redis.call('HDEL', requests, id) end
end

-- Makes the key one of those that are kept, in place of the oldest of them.
local function enter(keyId)
  if redis.call('HMGET', keys, '=' .. keyId)[1] then return end
  local slot = redis.call('HINCRBY', keys, '#', 1) % keysKept
  local oldest = redis.call('HMGET', keys, slot)[1]
  if oldest then
    local refusals = {}
    for i = 0, kept - 1 do refusals[i + 1] = i end
    for _, refusal in ipairs(redis.call('HMGET', prefix .. oldest, unpack(refusals))) do forget(refusal) end
    redis.call('EXPIRE', prefix .. oldest, 0)
    redis.call('HDEL', keys, '=' .. oldest)
  end
  redis.call('HSET', keys, slot, keyId, '=' .. keyId, slot)
end

local at = 5
for i = 3, #KEYS do
  local keyId, count = ARGV[at], tonumber(ARGV[at + 1])
  at = at + 2
  enter(keyId)
  for _ = 1, count do
    local id, refusal = ARGV[at], ARGV[at + 1]
    at = at + 2
    local slot = redis.call('HINCRBY', KEYS[i], '#', 1) % kept
    forget(redis.call('HMGET', KEYS[i], slot)[1])
    redis.call('HSET', KEYS[i], slot, id .. ' ' .. refusal)
    if id ~= '' then redis.call('HSET', requests, id, keyId) end
  end
  redis.call('EXPIRE', KEYS[i], seconds)
end
redis.call('EXPIRE', keys, seconds)
redis.call('EXPIRE', requests, seconds)
return 'OK'
