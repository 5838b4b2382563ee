#!lua flags=allow-oom
-- Lists the ids of an API's keys in order of creation, as of one moment. Not flagged `no-writes`, so that a deposed
-- primary refuses to answer.
--
-- head, source: the index to read, the API's or an owner's
-- from: creation number to begin with, '' = the first  limit: maximum number of ids
-- Returns {} if there is no such API | {creation number to continue from or '', id, …}
local created, deleted = unpack(redis.call('HMGET', head, 'c', 'deleted'))
if not created or deleted then return {} end
if from == '' then from = '-inf' end
local found = redis.call('ZRANGEBYSCORE', source, from, '+inf', 'WITHSCORES', 'LIMIT', 0, limit + 1)
local reply = {''}
for i = 1, #found, 2 do
  if #reply > tonumber(limit) then
    reply[1] = found[i + 1]
    break
  end
  reply[#reply + 1] = found[i]
end
return reply
