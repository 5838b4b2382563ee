#!lua flags=allow-oom
-- Removes killed followers, one fence after their kill was confirmed.
--
-- KEYS 1 members
-- ARGV name, the score of its kill, …
-- Returns how many were removed; a follower that is not killed, or was killed again, stays.
local removed = 0
for i = 1, #ARGV, 2 do
  if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or 0) == tonumber(ARGV[i + 1]) then
    removed = removed + redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
return removed
