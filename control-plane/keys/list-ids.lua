#!lua flags=allow-oom
-- Lists the ids of an API's keys in order of creation, as of one moment. Not flagged `no-writes`, so that a deposed
-- primary refuses to answer.
--
-- KEYS 1 head  2 the index to read: the API's or an owner's
-- ARGV 1 creation number to begin with, '' = the first  2 maximum number of ids
-- Returns {} if there is no such API | {creation number to continue from or '', id, …}
local created, deleted = unpack(redis.call('HMGET', KEYS[1], 'c', 'deleted'))
if not created or deleted then return {} end
local from, limit = unpack(ARGV)
if from == '' then from = '-inf' end
local found = redis.call('ZRANGEBYSCORE', KEYS[2], from, '+inf', 'WITHSCORES', 'LIMIT', 0, limit + 1)
local reply = {''}
for i = 1, #found, 2 do
  if #reply > tonumber(limit) then
    reply[1] = found[i + 1]
    break
  end
  reply[#reply + 1] = found[i]
end
return reply
