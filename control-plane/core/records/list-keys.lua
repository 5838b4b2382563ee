#!lua flags=allow-oom
-- Lists one page of an API's keys, in order of creation or by the creation numbers of the page's keys, as of one moment.
-- Not flagged `no-writes`, so that a deposed primary refuses to answer.
--
-- head, index, source: the index to read, the same or an owner's
-- base: the beginning of the API's other keys  order: 'asc' | 'desc' | 'numbers'
-- from: creation number to begin with, '' = the first; 'numbers': all creation numbers of the page, with a space between
-- limit: maximum number of keys on the page  most: maximum number of keys examined  conditions: of filter.lua, JSON; '' = all keys meet them
-- letters: of the fields to return besides meta
-- Returns {} if there is no such API | {number of keys of the API, creation number to continue from or '', and for each key
--   {keyId, meta, value of each letter, and what `look` of credits.lua returns for its pool}, '' = none}
-- include ../../../shared/metering/plug.lua
-- include filter.lua
-- include key-row.lua
local created, deleted = unpack(redis.call('HMGET', head, 'c', 'deleted'))
if not created or deleted then return {} end
local condition = conditions ~= '' and cjson.decode(conditions)
limit = tonumber(limit)
most = condition and tonumber(most) or limit

local found = {}
if order == 'numbers' then
  for number in string.gmatch(from, '%d+') do
    for _, value in ipairs(redis.call('ZRANGEBYSCORE', source, number, number, 'WITHSCORES')) do found[#found + 1] = value end
  end
else
  local range = order == 'asc' and {'ZRANGEBYSCORE', source, '-inf', '+inf'} or {'ZREVRANGEBYSCORE', source, '+inf', '-inf'}
  if from ~= '' then range[3] = from end
  found = redis.call(range[1], range[2], range[3], range[4], 'WITHSCORES', 'LIMIT', 0, most + 1)
end
local page = {redis.call('ZCARD', index), ''}
for i = 1, #found, 2 do
  if #page == limit + 2 or i > 2 * most then
    page[2] = found[i + 1]
    break
  end
  local keyId = found[i]
  if not condition or matches(condition, base, keyId) then
    page[#page + 1] = rowOf(base, keyId, letters)
  end
end
return page
