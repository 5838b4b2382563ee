#!lua flags=allow-oom
-- Accepts a history that was refused as older (watch-history.lua). It counts for every control plane whose mark is the one that
-- the refusal names, or an earlier one. The higher generation tells marks of before from those of the accepted history.
--
-- Returns 'NONE' | the refusal
local c, X, Z, V = unpack(redis.call('HMGET', head, 'c', 'X', 'Z', 'V'))
if not X then return 'NONE' end
local g, n, life = string.match(X, '^(%d+) (%d+) %S* %d+ ?(%d*)')
if life == '' then life = c end
-- What an earlier acceptance named stays accepted.
local before, number = string.match(V or '', '^(%d+) (%d+)$')
local isNamed = before and (tonumber(before) > tonumber(life) or before == life and tonumber(number) >= tonumber(n))
local generation = math.max(tonumber(Z or 0), tonumber(g)) + 1
redis.call('HSET', head, 'Z', string.format('%.0f', generation), 'V', isNamed and V or life .. ' ' .. n)
redis.call('HDEL', head, 'X')
return X
