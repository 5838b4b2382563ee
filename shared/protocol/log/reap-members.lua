#!lua flags=allow-oom
-- Removes killed followers, one fence after their kill was confirmed.
--
-- kills: name, the score of its kill, …
-- Returns how many were removed; a follower that is not killed, or was killed again, stays.
local removed = 0
for i = 1, #kills, 2 do
  if tonumber(redis.call('ZSCORE', members, kills[i]) or 0) == tonumber(kills[i + 1]) then
    removed = removed + redis.call('ZREM', members, kills[i])
  end
end
return removed
