#!lua
-- Adds counts of verdicts on the keys of one API, and of their tags. Uses Redis' own clock, because a verifier with a wrong
-- clock would otherwise make Redis discard the counts of other hours. A repeated report is added only once, because it has
-- the same number both times. The script uses only the commands that deploy/redis/users.acl allows a verifier for usage.
--
-- KEYS 1 mark of the reporter  2 tags of the API, without the day at the end  3 usage of the whole API
--      4… usage of one key each
-- ARGV 1 hours kept  2 days kept  3 a letter for each kind of verdict, that of accepted keys first
--      4 number of this report, higher than that of the reporter's previous one about this API
--      5 seconds for which the report may be repeated
--      6 maximum number of distinct tags in a day; further tags are counted together
--      7… one count for each letter, for the whole API and for each key
--      then for each tag its text ('' = others), and one count for each letter
-- Returns 1, or 0 if the report was added before
local mark, tagged = KEYS[1], KEYS[2]
local letters = ARGV[3]
if redis.call('HINCRBY', mark, 'n', 0) >= tonumber(ARGV[4]) then return 0 end
redis.call('HSET', mark, 'n', ARGV[4])
redis.call('EXPIRE', mark, ARGV[5])

local time = redis.call('TIME')
local hour, day = math.floor(time[1] / 3600), math.floor(time[1] / 86400)
local oldest = {h = hour - ARGV[1], d = day - ARGV[2]}
local place = 7

for i = 3, #KEYS do
  local usage = KEYS[i]
  local new = false
  for j = 1, #letters do
    local letter = string.sub(letters, j, j)
    local count = tonumber(ARGV[place])
    place = place + 1
    if count > 0 then
      new = redis.call('HINCRBY', usage, string.format('h%d%s', hour, letter), count) == count or new
      redis.call('HINCRBY', usage, string.format('d%d%s', day, letter), count)
      if j == 1 then redis.call('HSET', usage, 't', time[1] .. string.sub('00000' .. time[2], -6, -4)) end
    end
  end
  if new then
    for _, field in ipairs(redis.call('HKEYS', usage)) do
      local unit, number = string.match(field, '^(%l)(%d+)')
      if unit and tonumber(number) <= oldest[unit] then redis.call('HDEL', usage, field) end
    end
  end
  redis.call('EXPIRE', usage, (ARGV[2] + 1) * 86400)
end

if place > #ARGV then return 1 end
-- '#' is the day's number of tags, '=<tag>' the number of one tag, '<number><letter>' a count; number 0 stands for the
-- others.
tagged = tagged .. string.format('%d', day)
for at = place, #ARGV, #letters + 1 do
  local field = '=' .. ARGV[at]
  local number = 0
  if field ~= '=' then
    number = redis.call('HINCRBY', tagged, field, 0)
    if number == 0 then
      if redis.call('HINCRBY', tagged, '#', 0) < tonumber(ARGV[6]) then
        number = redis.call('HINCRBY', tagged, '#', 1)
        redis.call('HSET', tagged, field, number)
      else
        redis.call('HDEL', tagged, field)
      end
    end
  end
  for j = 1, #letters do
    local count = tonumber(ARGV[at + j])
    if count > 0 then redis.call('HINCRBY', tagged, number .. string.sub(letters, j, j), count) end
  end
end
redis.call('EXPIRE', tagged, (ARGV[2] + 1) * 86400)
return 1
