#!lua flags=allow-oom
-- Accepts a history that was refused as older (watch-history.lua). The higher generation tells every control plane that its
-- mark of before no longer counts.
--
-- Returns 'NONE' | the refusal
local X, Z = unpack(redis.call('HMGET', head, 'X', 'Z'))
if not X then return 'NONE' end
local generation = math.max(tonumber(Z or 0), tonumber(string.match(X, '^%d+'))) + 1
redis.call('HSET', head, 'Z', string.format('%.0f', generation))
redis.call('HDEL', head, 'X')
return X
