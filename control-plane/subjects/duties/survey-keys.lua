#!lua flags=allow-oom
-- Surveys a page of an API's keys by its rules: counts those that live longer than is allowed, and finds those that nobody
-- uses. Not flagged `no-writes`, so that a deposed primary refuses to answer.
--
-- unused: keys that were disabled and are not in the audit log yet  base: the beginning of the API's other keys
-- from: creation number to begin with, '' = a new round  count: of the round so far  limit: maximum number of keys
-- now: Unix ms  lead: longest time before a key is disabled in which it is found, ms, at most a quarter of the rule's
-- forgotten: time after which usage may be forgotten that no round has seen, ms
-- Returns {} if there is no such API, or it has no rules and left nothing to record
--         | {rule about unused keys, ms, '' = none; creation number to continue from, '' = the round is over; count;
--            {key that was disabled, about it, …}; and for each key that is found {id, last use, externalId, name}}
-- include ../../../shared/protocol/log/last-use.lua
-- include ../../../shared/protocol/log/lifetime.lua
local created, deleted, longest, rule, since, surveyed =
  unpack(redis.call('HMGET', head, 'c', 'deleted', 'longest', 'unused', 'unusedSince', 'surveyed'))
-- A rule that is gone may have left disabled keys that are not in the audit log yet.
if not created or deleted or not (longest or rule or redis.call('EXISTS', unused) == 1) then return {} end
if rule and surveyed and now - surveyed > tonumber(forgotten) then
  since = now
  redis.call('HSET', head, 'unusedSince', now, 'surveyed', now)
end
if rule then lead = math.min(lead, rule / 4) end
limit, count = tonumber(limit), tonumber(count)

local found = redis.call('ZRANGEBYSCORE', index, from == '' and '-inf' or from, '+inf', 'WITHSCORES', 'LIMIT', 0, limit + 1)
local page = {rule or '', found[2 * limit + 2] or '', 0, redis.call('HGETALL', unused)}
for i = 1, math.min(#found, 2 * limit), 2 do
  local keyId = found[i]
  local enabled, expires, owner, name = unpack(redis.call('HMGET', base .. 'k:' .. keyId, 'e', 'x', 'o', 'n'))
  if enabled == '1' and not (expires and tonumber(expires) <= tonumber(now)) then
    if tooLong(longest, now, expires) then count = count + 1 end
    if rule then
      local last, used = lastUse(base, keyId, since)
      if last + rule - lead <= tonumber(now) then
        page[#page + 1] = {keyId, string.format('%.0f', last), owner or '', name or ''}
      end
      -- A verifier lets usage expire after a month.
      local usage, rest = base .. 'u:' .. keyId, used + rule + forgotten - now
      if used > 0 and redis.call('PTTL', usage) < rest then redis.call('PEXPIRE', usage, string.format('%.0f', rest)) end
    end
  end
end
page[3] = count
if page[2] == '' then redis.call('HSET', head, 'over', count, 'surveyed', now) end
return page
