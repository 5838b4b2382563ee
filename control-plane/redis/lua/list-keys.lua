#!lua flags=allow-oom
-- One page of an API's keys in order of creation, all as they were at one moment. Not flagged `no-writes`: a deposed primary
-- must not tell what was.
--
-- KEYS 1 head  2 index  3 the index to go through: that one, or an owner's
-- ARGV 1 record prefix  2 long-meta prefix  3 'asc' | 'desc'  4 creation number to begin with, '' = the first
--      5 most keys of the page  6 most keys examined  7 enabled: '1' | '0' | '' = either  8 what names begin with
-- Returns {} where there is no such API | {keys of the API, creation number to go on from or '', and for each key
--   {keyId, start, name, externalId, enabled, created, updated, expires, meta}, '' = none}
local head, index, source = unpack(KEYS)
local records, metas, order, from, limit, most, enabled, prefix = unpack(ARGV)

local created, deleted = unpack(redis.call('HMGET', head, 'c', 'deleted'))
if not created or deleted then return {} end
limit, most = tonumber(limit), tonumber(most)
if enabled == '' and prefix == '' then most = limit end

local range = order == 'asc' and {'ZRANGEBYSCORE', source, '-inf', '+inf'} or {'ZREVRANGEBYSCORE', source, '+inf', '-inf'}
if from ~= '' then range[3] = from end
local found = redis.call(range[1], range[2], range[3], range[4], 'WITHSCORES', 'LIMIT', 0, most + 1)
local page = {redis.call('ZCARD', index), ''}
for i = 1, #found, 2 do
  if #page == limit + 2 or i > 2 * most then
    page[2] = found[i + 1]
    break
  end
  local keyId = found[i]
  local f = redis.call('HMGET', records .. keyId, 's', 'n', 'o', 'e', 'c', 'u', 'x', 'm', 'M')
  if (enabled == '' or f[4] == enabled) and string.sub(f[2] or '', 1, #prefix) == prefix then
    if f[9] then f[8] = redis.call('GET', metas .. keyId) end
    local key = {keyId}
    for n = 1, 8 do key[n + 1] = f[n] or '' end
    page[#page + 1] = key
  end
end
return page
