#!lua flags=allow-oom
-- Appends to the audit log, which keeps at least the latest events. allow-oom: what may be changed on a Redis that is
-- full may be written down there, too; the streams' lengths bound it.
--
-- KEYS 1 stream  2 what is set in place of writing an event twice
-- ARGV 1 events kept  2… of each event: JSON, and its id where it was written before and not confirmed; '' = it was not
-- Returns the events' ids
local ids = {}
for i = 2, #ARGV, 2 do
  local event, id = ARGV[i], ARGV[i + 1]
  if id ~= '' then
    -- A failover may have taken it, and given its id to another.
    local there = redis.call('XRANGE', KEYS[1], id, id)[1]
    if there and there[2][2] == event then
      -- Replicas are waited for up to the latest write of who waits.
      redis.call('SET', KEYS[2], id)
    else
      id = ''
    end
  end
  if id == '' then id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'e', event) end
  ids[#ids + 1] = id
end
return ids
