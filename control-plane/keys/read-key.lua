#!lua flags=allow-oom
-- Reads a whole key as of one moment. Not flagged `no-writes`, so that a deposed primary refuses to answer.
--
-- KEYS 1 head  2 record  3 its long meta
-- ARGV letters of the fields to return besides meta
-- Returns {} if there is no such key | {meta, value of each letter, and what `look` of credits.lua returns for its pool}, '' = none
-- include ../../shared/redis/credits.lua
if redis.call('HEXISTS', KEYS[1], 'deleted') == 1 then return {} end
local f = redis.call('HMGET', KEYS[2], 'p', 'M', 'm', unpack(ARGV))
local pool = redis.call('HGET', KEYS[2], 'q')
if not f[1] then return {} end
if f[2] then f[3] = redis.call('GET', KEYS[3]) end
local fields = {}
for i = 3, #f do fields[i - 2] = f[i] or '' end
if pool then
  local base = string.sub(KEYS[1], 1, -5)
  for _, value in ipairs({creditsOf(base .. 'members', base .. 'held').look(base .. 'q:' .. pool)}) do fields[#fields + 1] = value end
end
return fields
