#!lua flags=allow-oom
-- Moves events from the streams where they arise to the queues of the endpoints that want them. A queue that is full
-- loses its oldest events, which are counted. allow-oom: the queues are bounded, and an event that was acknowledged
-- must not be lost.
--
-- log: the audit log; name, ms: of the sender, and for which it is the sender; group: of the streams
-- base: beginning of the queues' names; most: maximum length of a queue
-- events: for each 'log' | 'notices', where it is; its id there; how many messages;
--         and for each message: webhook-id; type; order; body; how many endpoints; and their ids, each after a `-` if it is
--         gone and gets nothing, which is counted
-- Returns {} if another is the sender | {1, endpoint, number of its events that were dropped, …}
-- include sender.lua
if not isSender(sender, name, ms) then return {} end

local dropped = {1}
local function enqueue(endpoint, ...)
  local gone = string.match(endpoint, '^%-(.*)')
  if gone then
    if redis.call('HEXISTS', endpoints, gone) == 1 then redis.call('HINCRBY', base .. gone .. ':state', 'passed', 1) end
    return
  end
  if redis.call('HEXISTS', endpoints, endpoint) == 0 then return end
  local queue = base .. endpoint .. ':queue'
  local over = redis.call('XLEN', queue) + 1 - tonumber(most)
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

local at = 1
while at <= #events do
  local stream, entry, messages = events[at] == 'log' and log or notices, events[at + 1], tonumber(events[at + 2])
  at = at + 3
  -- If it is not pending any more, an earlier run of this script did all this, and only its reply was lost.
  local pending = redis.call('XACK', stream, group, entry) == 1
  for _ = 1, messages do
    local id, type, order, body, count = unpack(events, at, at + 4)
    for i = 1, tonumber(count) do
      if pending then enqueue(events[at + 4 + i], id, type, order, body) end
    end
    at = at + 5 + tonumber(count)
  end
  if stream == notices then redis.call('XDEL', stream, entry) end
end
return dropped
