#!lua flags=allow-oom
-- Appends to the audit log, which keeps at least the latest events. allow-oom: a full Redis still accepts some
-- changes, and they must be recorded too; the maximum length of the stream bounds the memory.
--
-- KEYS 1 stream  2 key that is written when an event need not be written again
-- ARGV 1 events to keep  2… for each event: its JSON, and its id if an earlier write was not confirmed, else ''
-- Returns the events' ids
local ids = {}
for i = 2, #ARGV, 2 do
  local event, id = ARGV[i], ARGV[i + 1]
  if id ~= '' then
    -- A failover may have lost the event and given its id to another event.
    local there = redis.call('XRANGE', KEYS[1], id, id)[1]
    if there and there[2][2] == event then
      -- The caller waits until replicas have the latest write of its connection, so there must be one.
      redis.call('SET', KEYS[2], id)
    else
      id = ''
    end
  end
  if id == '' then id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'e', event) end
  ids[#ids + 1] = id
end
return ids
