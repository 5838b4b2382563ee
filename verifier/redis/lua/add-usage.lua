#!lua
-- Adds up how often keys of one API were verified, and by which tags. By Redis' own clock: a verifier whose clock is wrong
-- would else have what is kept of other hours thrown away. A report that comes again is added once: it has the number of
-- the first time. Its commands are those that deploy/redis/users.acl gives a verifier for usage.
--
-- KEYS 1 mark of the reporter  2 tags of the API, to be followed by the day  3 usage of the whole API  4… usage of a key each
-- ARGV 1 hours kept  2 days kept  3 a letter for each kind of verdict, that of accepted keys first
--      4 number of this report, above that of the reporter's last about this API  5 seconds for which it may come again
--      6 tags that are told apart in a day; others are counted together
--      7… one count for each letter, for the whole API and for each key
--      then for each tag its text ('' = others), and one count for each letter
-- Returns 1, or 0 where it was added before
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
-- '#' is how many tags the day has, '=<tag>' the number of one, '<number><letter>' a count; number 0 is that of others.
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
