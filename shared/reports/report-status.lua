#!lua
-- Stores a verifier's report until it expires. Removes up to two listed verifiers whose reports have expired, so that
-- crashed verifiers do not add up.
--
-- ids: of all verifiers; own: this one's id; text: its report, JSON; ms: until it expires; reports: the beginning of every report's name
-- Returns the time in Redis, Unix milliseconds
redis.call('SET', report, text, 'PX', ms)
redis.call('ZADD', ids, 0, own)
for _, id in ipairs(redis.call('ZRANDMEMBER', ids, 2)) do
  if redis.call('EXISTS', reports .. id) == 0 then redis.call('ZREM', ids, id) end
end
local time = redis.call('TIME')
return time[1] * 1000 + math.floor(time[2] / 1000)
