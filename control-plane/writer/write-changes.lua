#!lua flags=allow-oom
-- WRITE for several keys of an API: makes the same change to each, one after the other, with nothing in between.
--
-- KEYS 1 head  2 log  3 index  4 members  5… record and long meta of each key
-- ARGV 1 number of keys  2… the id and the condition of each key, then the arguments of write-change.lua; those two replace
--        its 2 and 7
-- Returns what write-change.lua returns, for each key
-- include rights.lua
-- include gate.lua
-- include server.lua
-- include ../../shared/redis/credits.lua
-- include ../keys/sharing.lua
-- include ../keys/operations.lua
-- include ../keys/change-credits.lua
-- include change.lua

requireRights(KEYS[1])
local count = tonumber(ARGV[1])
local args = {unpack(ARGV, 2 * count + 2)}
local replies = {}
for i = 1, count do
  args[2], args[7] = ARGV[2 * i], ARGV[2 * i + 1]
  replies[i] = change({KEYS[1], KEYS[2], KEYS[3], KEYS[2 * i + 3], KEYS[2 * i + 4], KEYS[4]}, args)
end
return replies
