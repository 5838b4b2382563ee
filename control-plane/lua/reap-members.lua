#!lua flags=allow-oom
-- Removes killed followers, one fence after their kill was confirmed.
--
-- KEYS 1 members
-- ARGV names
-- Returns how many were removed; one that is not killed (registered anew) stays.
local removed = 0
for _, name in ipairs(ARGV) do
  if tonumber(redis.call('ZSCORE', KEYS[1], name) or 0) == -1 then
    removed = removed + redis.call('ZREM', KEYS[1], name)
  end
end
return removed
