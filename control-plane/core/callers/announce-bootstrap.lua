#!lua
-- Announces the ids of a control plane's bootstrap root keys and returns the recent announcements of others.
--
-- own: ids, comma-separated and sorted; now: Unix ms; since: time before which announcements are dropped, Unix ms
-- Returns the announcements of others, the latest 10
redis.call('ZADD', announcements, now, own)
for _, old in ipairs(redis.call('ZRANGEBYSCORE', announcements, '-inf', '(' .. since)) do
  redis.call('ZREM', announcements, old)
end
local others = {}
for _, ids in ipairs(redis.call('ZREVRANGEBYSCORE', announcements, '+inf', '-inf', 'LIMIT', 0, 11)) do
  if ids ~= own and #others < 10 then others[#others + 1] = ids end
end
return others
