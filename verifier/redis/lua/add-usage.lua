#!lua
-- Adds up how often keys of one API were verified. By Redis' own clock: a verifier whose clock is wrong would else
-- have what is kept of other hours thrown away.
--
-- KEYS 1 usage of a key, and so on for each key
-- ARGV 1 hours kept  2 days kept  3 a letter for each kind of verdict, that of accepted keys first
--      4… for each key one count for each letter
-- Returns 1
local time = redis.call('TIME')
local hour, day = math.floor(time[1] / 3600), math.floor(time[1] / 86400)
local letters = ARGV[3]
local oldest = {h = hour - ARGV[1], d = day - ARGV[2]}

for i, usage in ipairs(KEYS) do
  local new = false
  for j = 1, #letters do
    local letter = string.sub(letters, j, j)
    local count = tonumber(ARGV[3 + #letters * (i - 1) + j])
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
return 1
