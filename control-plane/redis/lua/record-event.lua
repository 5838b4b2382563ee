#!lua flags=allow-oom
-- Appends to the audit log, which keeps at least the latest events. allow-oom: what may be changed on a Redis that is
-- full may be written down there, too; the streams' lengths bound it.
--
-- KEYS 1 stream  2 what is set in place of writing an event twice
-- ARGV 1 event, JSON  2 events kept  3 its id, where it was written before and not confirmed; '' = it was not
-- Returns the event's id
if ARGV[3] ~= '' then
  -- A failover may have taken it, and given its id to another.
  local there = redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3])[1]
  if there and there[2][2] == ARGV[1] then
    -- Replicas are waited for up to the latest write of who waits.
    redis.call('SET', KEYS[2], ARGV[3])
    return ARGV[3]
  end
end
return redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'e', ARGV[1])
