#!lua flags=allow-oom
-- Appends to the audit log, which keeps at least the latest events, and to the index of the key that each event is
-- about. allow-oom: a full Redis still accepts some changes, and they must be recorded too; the maximum length of the
-- stream bounds the memory.
--
-- stream, again: key that is written when an event need not be written again
-- most: events to keep  index: prefix of the indexes by key
-- events: for each its JSON, its id if an earlier write was not confirmed, else '', and its key's id, '' = not indexed
-- Returns the events' ids
most = tonumber(most)

-- Takes the oldest events out of their indexes, if there are a hundred too many. Returns arguments for XADD that remove
-- these events from the stream.
local function trim()
  local over = redis.call('XLEN', stream) - most
  if over < 100 then return {} end
  local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', math.min(over, 500) + 1)
  local kept = table.remove(oldest)
  for _, row in ipairs(oldest) do
    local keyId = row[2][4] or ''
    if keyId ~= '' then redis.call('ZREM', index .. keyId, row[1]) end
  end
  return {'MINID', kept[1]}
end

local ids = {}
for i = 1, #events, 3 do
  local event, id, keyId = events[i], events[i + 1], events[i + 2]
  if id ~= '' then
    -- A failover may have lost the event and given its id to another event.
    local there = redis.call('XRANGE', stream, id, id)[1]
    if there and there[2][2] == event then
      -- The caller waits until replicas have the latest write of its connection, so there must be one.
      redis.call('SET', again, id)
    else
      id = ''
    end
  end
  if id == '' then
    local add = #ids == 0 and trim() or {}
    for _, word in ipairs({'*', 'e', event, 'k', keyId}) do add[#add + 1] = word end
    id = redis.call('XADD', stream, unpack(add))
    if keyId ~= '' then redis.call('ZADD', index .. keyId, string.match(id, '^%d+'), id) end
  end
  ids[#ids + 1] = id
end
return ids
