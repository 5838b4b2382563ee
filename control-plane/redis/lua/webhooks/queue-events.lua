#!lua flags=allow-oom
-- Moves events from the streams where they arise to the queues of the endpoints that want them. A queue that is full
-- loses its oldest events, which are counted. allow-oom: the queues are bounded, and an event that was acknowledged
-- must not be lost.
--
-- KEYS 1 sender  2 audit log  3 notices  4 endpoints
-- ARGV 1 name of the sender  2 ms for which it is the sender  3 group of the streams  4 beginning of the queues' names
--      5 maximum length of a queue
--      6… for each event: place of its stream in KEYS; its id there; how many messages;
--         and for each message: webhook-id; type; order; body; how many endpoints; and their ids
-- Returns {} if another is the sender | {1, endpoint, number of its events that were dropped, …}
-- include sender.lua
local sender, endpoints = KEYS[1], KEYS[4]
local group, base, most = ARGV[3], ARGV[4], tonumber(ARGV[5])
if not isSender(sender, ARGV[1], ARGV[2]) then return {} end

local dropped = {1}
local function enqueue(endpoint, ...)
  if redis.call('HEXISTS', endpoints, endpoint) == 0 then return end
  local queue = base .. endpoint .. ':queue'
  local over = redis.call('XLEN', queue) + 1 - most
  if over > 0 then
    local oldest = {}
    for i, row in ipairs(redis.call('XRANGE', queue, '-', '+', 'COUNT', math.min(over, 100))) do oldest[i] = row[1] end
    redis.call('XDEL', queue, unpack(oldest))
    redis.call('HDEL', base .. endpoint .. ':retries', unpack(oldest))
    redis.call('HINCRBY', base .. endpoint .. ':state', 'dropped', #oldest)
    dropped[#dropped + 1] = endpoint
    dropped[#dropped + 1] = #oldest
  end
  local id, type, order, body = ...
  redis.call('XADD', queue, '*', 'i', id, 't', type, 'k', order, 'e', body)
end

local at = 6
while at <= #ARGV do
  local stream, entry, messages = KEYS[tonumber(ARGV[at])], ARGV[at + 1], tonumber(ARGV[at + 2])
  at = at + 3
  -- If it is not pending any more, an earlier run of this script did all this, and only its reply was lost.
  local pending = redis.call('XACK', stream, group, entry) == 1
  for _ = 1, messages do
    local id, type, order, body, count = unpack(ARGV, at, at + 4)
    for i = 1, tonumber(count) do
      if pending then enqueue(ARGV[at + 4 + i], id, type, order, body) end
    end
    at = at + 5 + tonumber(count)
  end
  if stream == KEYS[3] then redis.call('XDEL', stream, entry) end
end
return dropped
