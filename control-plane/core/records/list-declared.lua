#!lua flags=allow-oom
-- Lists one page of the keys whose managedBy begins with a prefix, in the order of managedBy and key, as of one moment. Not
-- flagged `no-writes`, so that a deposed primary refuses to answer.
--
-- Records from before there was the set by managedBy are not in it. While some may be left, a run adds what it finds among the
-- next of them, and its page is empty.
--
-- head, index: the keys to list; declared: the set by managedBy
-- base: the beginning of the API's other keys  place: the end of `index`, after which the head's field is named
-- prefix  after: member of the set behind which the page begins, '' = the first
-- limit: maximum number of keys on the page  most: maximum number of keys examined  conditions: as list-keys.lua; letters: too
-- Returns {} if there is no such API | {number of keys of the API, '1' = there are more, member to continue after, and for
--   each key its row}
-- include ../../../shared/metering/plug.lua
-- include filter.lua
-- include key-row.lua
local isIn = 'by:' .. place
local created, deleted, done = unpack(redis.call('HMGET', head, 'c', 'deleted', isIn))
if not created or deleted then return {} end
local page = {redis.call('ZCARD', index), '', after}
limit, most = tonumber(limit), tonumber(most)

if done ~= 'all' then
  local earlier = redis.call('ZRANGEBYSCORE', index, done or '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, most + 1)
  for i = 1, math.min(#earlier, 2 * most), 2 do
    local managedBy = redis.call('HGET', base .. 'k:' .. earlier[i], 'B')
    if managedBy then redis.call('ZADD', declared, 0, managedBy .. '\0' .. earlier[i]) end
  end
  local next = earlier[2 * most + 2]
  redis.call('HSET', head, isIn, next or 'all')
  if next then
    page[2] = '1'
    return page
  end
end

local condition = conditions ~= '' and cjson.decode(conditions)
local from = after == '' and '[' .. prefix or '(' .. after
local found = redis.call('ZRANGEBYLEX', declared, from, '(' .. prefix .. '\255', 'LIMIT', 0, most + 1)
for i, member in ipairs(found) do
  if #page == limit + 3 or i > most then
    page[2] = '1'
    break
  end
  page[3] = member
  local managedBy, keyId = string.match(member, '^(.*)%z([^%z]+)$')
  -- An older control plane may have deleted or changed it, and left it in the set.
  local isIt = redis.call('HGET', base .. 'k:' .. keyId, 'B') == managedBy and redis.call('ZSCORE', index, keyId)
  if isIt and (not condition or matches(condition, base, keyId)) then page[#page + 1] = rowOf(base, keyId, letters) end
end
return page
