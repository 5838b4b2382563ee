#!lua flags=allow-oom
-- Removes a deleted API whose records are gone and whose followers had two fences to notice. Its id is free again.
--
-- KEYS 1 head  2 log  3 members  4 index  5 creations  6 holders of credits  7 usage of the whole API
--      8 prefix of the usage by tag; a day follows it
-- ARGV days that may have usage
-- Returns 1 when the API is gone, 0 when it must stay
if not redis.call('HGET', KEYS[1], 'deleted') or redis.call('ZCARD', KEYS[4]) > 0 then return 0 end
local base = string.sub(KEYS[1], 1, -5)
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[6], KEYS[7], base .. 'due', base .. 'u:!x')
for _, day in ipairs(ARGV) do redis.call('DEL', KEYS[8] .. day) end
return 1
