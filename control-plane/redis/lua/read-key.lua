#!lua flags=allow-oom
-- Reads one key whole, as it was at one moment. Not flagged `no-writes`: a deposed primary must not tell what was.
--
-- KEYS 1 head  2 record  3 its long meta
-- Returns {} where there is no such key | {start, name, externalId, enabled, created, updated, expires, meta}, '' = none
if redis.call('HEXISTS', KEYS[1], 'deleted') == 1 then return {} end
local f = redis.call('HMGET', KEYS[2], 's', 'n', 'o', 'e', 'c', 'u', 'x', 'm', 'M', 'p')
if not f[10] then return {} end
if f[9] then f[8] = redis.call('GET', KEYS[3]) end
local fields = {}
for i = 1, 8 do fields[i] = f[i] or '' end
return fields
