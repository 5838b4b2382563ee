#!lua
-- Changes an API's name, the defaults of its new keys and its rules. Writes no log entry, because no verdict depends on them.
--
-- now: Unix ms; condition: the number of changes so far must equal it, '' = any
-- fence: token of the `fence-first` of set-tokens.lua, for `T` and `leeway`; '' = the API had no tokens
-- fields: field, value pairs: name, prefix, bytes; usual, longest: default and maximum lifetime, ms;
--   unused: disables unused keys, ms; unusedSince: when that was set; revocable: 1 = holders may revoke their keys; T: 1 = verifiers issue tokens;
--   aud: their audiences, JSON; leeway: time for which others accept one after its end, ms; managed: the set that declares it; value '' clears
-- Returns {'OK', number of changes so far, the previous value of each field, '' = none} | {'NOT_FOUND'}
--         | {'CONFLICT', number of changes so far} | {'ABOVE_MAX', default lifetime, maximum}: they would not fit together
--         | {'OVERTAKEN'}: another call switches tokens
local created, deleted, changes, usual, longest, managed, waits, leeway, Wf =
  unpack(redis.call('HMGET', head, 'c', 'deleted', 'u', 'usual', 'longest', 'managed', 'Tf', 'leeway', 'Wf'))
if not created or deleted then return {'NOT_FOUND'} end
changes = changes or '0'
if condition ~= '' and condition ~= changes then return {'CONFLICT', changes} end
local after = {usual = usual or '', longest = longest or ''}
for i = 1, #fields, 2 do after[fields[i]] = fields[i + 1] end
usual, longest = tonumber(after.usual), tonumber(after.longest)
if after.T == '1' or (after.leeway and waits) then
  if waits ~= fence then return {'OVERTAKEN'} end
  leeway = after.leeway or leeway or ''
  -- Another call may have raised it meanwhile.
  if tonumber(leeway == '' and '62000' or leeway) > tonumber(Wf or 62000) then return {'OVERTAKEN'} end
end
if usual and longest and usual > longest then return {'ABOVE_MAX', after.usual, after.longest} end
if #fields > 0 then
  changes = redis.call('HINCRBY', head, 'u', 1)
  if after.managed then redis.call('HDEL', head, 'drifted')
  elseif managed and redis.call('HEXISTS', head, 'drifted') == 0 then redis.call('HSET', head, 'drifted', now) end
end
local reply = {'OK', changes}
for i = 1, #fields, 2 do
  reply[#reply + 1] = redis.call('HGET', head, fields[i]) or ''
  if fields[i + 1] == '' then
    redis.call('HDEL', head, fields[i])
  else
    redis.call('HSET', head, fields[i], fields[i + 1])
  end
end
return reply
