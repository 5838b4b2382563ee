#!lua
-- Adds counts of verdicts on the keys of one API, and of their tags. Uses Redis' own clock, because a verifier with a wrong
-- clock would otherwise make Redis discard the counts of other hours. A repeated report is added only once, because it has
-- the same number both times. The script uses only the commands that deploy/redis/users.acl allows a verifier for usage.
--
-- mark: of the reporter; tagged: tags of the API, without the day at the end
-- usages: that of the whole API, and of one key each
-- minutes, hours, days: kept; letters: one for each kind of verdict, that of accepted keys first
-- number: of this report, higher than that of the reporter's previous one about this API
-- seconds: for which the report may be repeated; mostTags: distinct ones in a day; further tags are counted together
-- counts: one for each letter, for each of `usages`; then for each tag its text ('' = others), and one count for each letter
-- Returns 1, or 0 if the report was added before
if redis.call('HINCRBY', mark, 'n', 0) >= tonumber(number) then return 0 end
redis.call('HSET', mark, 'n', number)
redis.call('EXPIRE', mark, seconds)

local time = redis.call('TIME')
local minute, hour, day = math.floor(time[1] / 60), math.floor(time[1] / 3600), math.floor(time[1] / 86400)
local oldest = {m = minute - minutes, h = hour - hours, d = day - days}
local place = 1

for i, usage in ipairs(usages) do
  local new = false
  for j = 1, #letters do
    local letter = string.sub(letters, j, j)
    local count = tonumber(counts[place])
    place = place + 1
    if count > 0 then
      new = redis.call('HINCRBY', usage, string.format('h%d%s', hour, letter), count) == count or new
      redis.call('HINCRBY', usage, string.format('d%d%s', day, letter), count)
      -- Minutes are kept of the whole API only.
      if i == 1 then new = redis.call('HINCRBY', usage, string.format('m%d%s', minute, letter), count) == count or new end
      redis.call('HSET', usage, j == 1 and 't' or 'r', time[1] .. string.sub('00000' .. time[2], -6, -4))
    end
  end
  if new then
    for _, field in ipairs(redis.call('HKEYS', usage)) do
      local unit, number = string.match(field, '^(%l)(%d+)')
      if unit and tonumber(number) <= oldest[unit] then redis.call('HDEL', usage, field) end
    end
  end
  redis.call('EXPIRE', usage, (days + 1) * 86400)
end

if place > #counts then return 1 end
-- '#' is the day's number of tags, '=<tag>' the number of one tag, '<number><letter>' a count; number 0 stands for the
-- others.
tagged = tagged .. string.format('%d', day)
for at = place, #counts, #letters + 1 do
  local field = '=' .. counts[at]
  local tag = 0
  if field ~= '=' then
    tag = redis.call('HINCRBY', tagged, field, 0)
    if tag == 0 then
      if redis.call('HINCRBY', tagged, '#', 0) < tonumber(mostTags) then
        tag = redis.call('HINCRBY', tagged, '#', 1)
        redis.call('HSET', tagged, field, tag)
      else
        redis.call('HDEL', tagged, field)
      end
    end
  end
  for j = 1, #letters do
    local count = tonumber(counts[at + j])
    if count > 0 then redis.call('HINCRBY', tagged, tag .. string.sub(letters, j, j), count) end
  end
end
redis.call('EXPIRE', tagged, (days + 1) * 86400)
return 1
