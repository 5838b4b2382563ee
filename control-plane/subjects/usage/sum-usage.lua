#!lua flags=allow-oom
-- Adds up the usage of some of an identity's keys in one API. Not flagged `no-writes`, so that a deposed primary refuses to
-- answer.
--
-- head: of the API; source: the index of the identity's keys
-- base: the beginning of the API's other keys
-- from: creation number to begin with, '' = the first  limit: maximum number of keys
-- since: Unix milliseconds; keys that were last used before count nothing
-- unit: 'h' or 'd'  first, last: the numbers of the hours or days that count
-- Returns {} if there is no such API | {creation number to continue from or '', number of keys, field, sum, …}
local created, deleted = unpack(redis.call('HMGET', head, 'c', 'deleted'))
if not created or deleted then return {} end
if from == '' then from = '-inf' end
local found = redis.call('ZRANGEBYSCORE', source, from, '+inf', 'WITHSCORES', 'LIMIT', 0, limit + 1)
local reply = {'', 0}
local sums = {}
for i = 1, #found, 2 do
  if reply[2] == tonumber(limit) then
    reply[1] = found[i + 1]
    break
  end
  reply[2] = reply[2] + 1
  local usage = base .. 'u:' .. found[i]
  local used, refused = unpack(redis.call('HMGET', usage, 't', 'r'))
  if math.max(tonumber(used) or 0, tonumber(refused) or 0) >= tonumber(since) then
    local fields = redis.call('HGETALL', usage)
    for n = 1, #fields, 2 do
      local kind, number = string.match(fields[n], '^(%l)(%d+)')
      number = tonumber(number)
      if kind == unit and number >= tonumber(first) and number <= tonumber(last) then
        sums[fields[n]] = (sums[fields[n]] or 0) + (tonumber(fields[n + 1]) or 0)
      end
    end
  end
end
for field, sum in pairs(sums) do
  reply[#reply + 1] = field
  reply[#reply + 1] = string.format('%d', sum)
end
return reply
