#!lua
-- Announces the ids of a control plane's bootstrap root keys and returns the recent announcements of others.
--
-- KEYS 1 announcements
-- ARGV 1 own ids, comma-separated and sorted  2 now, Unix ms  3 time before which announcements are dropped, Unix ms
-- Returns the announcements of others, the latest 10
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. ARGV[3])) do
  redis.call('ZREM', KEYS[1], old)
end
local others = {}
for _, ids in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', '-inf', 'LIMIT', 0, 11)) do
  if ids ~= ARGV[1] and #others < 10 then others[#others + 1] = ids end
end
return others
