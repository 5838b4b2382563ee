#!lua flags=allow-oom
-- Reads a whole key as of one moment. Not flagged `no-writes`, so that a deposed primary refuses to answer.
--
-- head, record, long: its long meta  base: the beginning of the API's other keys  letters: of the fields to return besides meta
-- Returns {} if there is no such key | {meta, value of each letter, and what `look` of credits.lua returns for its pool}, '' = none
-- include ../../../shared/metering/plug.lua
if redis.call('HEXISTS', head, 'deleted') == 1 then return {} end
local f = redis.call('HMGET', record, 'p', 'M', 'm', unpack(letters))
local pool = redis.call('HGET', record, 'q')
if not f[1] then return {} end
if f[2] then f[3] = redis.call('GET', long) end
local fields = {}
for i = 3, #f do fields[i - 2] = f[i] or '' end
if pool then
  for _, value in ipairs({creditsOf(base .. 'members', base .. 'held').look(base .. 'q:' .. pool)}) do fields[#fields + 1] = value end
end
return fields
