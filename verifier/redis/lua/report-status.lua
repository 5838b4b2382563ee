#!lua
-- Stores a verifier's report until it expires. Removes up to two listed verifiers whose reports have expired, so that
-- crashed verifiers do not add up.
--
-- KEYS 1 ids  2 report
-- ARGV 1 id  2 report, JSON  3 ms until it expires  4 the beginning of every report's name
-- Returns 1
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[1], 0, ARGV[1])
for _, id in ipairs(redis.call('ZRANDMEMBER', KEYS[1], 2)) do
  if redis.call('EXISTS', ARGV[4] .. id) == 0 then redis.call('ZREM', KEYS[1], id) end
end
return 1
