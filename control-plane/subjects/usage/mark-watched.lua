#!lua flags=allow-oom
-- Notes that somebody watches the usage of APIs, so that verifiers report it each second.
--
-- watched: the APIs with the time of the latest look
-- ms: for which a look counts  most: APIs at a time; further ones are not watched
-- apiIds: looked at now
-- Returns OK
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, apiId in ipairs(redis.call('ZRANGEBYSCORE', watched, '-inf', now - ms)) do redis.call('ZREM', watched, apiId) end
for _, apiId in ipairs(apiIds) do
  if redis.call('ZSCORE', watched, apiId) or redis.call('ZCARD', watched) < tonumber(most) then
    redis.call('ZADD', watched, string.format('%d', now), apiId)
  end
end
redis.call('PEXPIRE', watched, ms)
return 'OK'
