#!lua flags=allow-oom
-- Completes a change by fence: no lease from before it can be alive on the caller's clock, so every follower
-- that has not acknowledged it is killed (a score below 0: its next SYNC is refused). It still counts as a
-- laggard; the caller removes it one fence later (reap-members), because it may hold a lease granted after this
-- change. The score names the kill: a failover may lose one and somebody kill the same follower anew, and what
-- waited for the lost kill must not remove it too early. One that is killed already keeps its kill.
--
-- KEYS 1 head  2 log  3 members
-- ARGV 1 sequence  2 its hash  3 the kill: a random integer below 0
-- Returns {'LOST'} | {'INTACT', followers, Lf, name of each that this killed, …}
local head, log, members = unpack(KEYS)
local sequence, hash, kill = unpack(ARGV)

local s, Lf = unpack(redis.call('HMGET', head, 's', 'Lf'))
s = string.match(s or '0', '%d+$')
if tonumber(s) < tonumber(sequence) then return {'LOST'} end
local entry = redis.call('XRANGE', log, sequence .. '-0', sequence .. '-0')[1]
if entry and entry[2][2] ~= hash then return {'LOST'} end

local reply = {'INTACT', redis.call('ZCARD', members), Lf or '0'}
-- Also whoever has a score above the head, which is nobody's acknowledgement.
for _, range in ipairs({{0, '(' .. sequence}, {'(' .. s, '+inf'}}) do
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', members, unpack(range))) do
    redis.call('ZADD', members, 'XX', kill, name)
    reply[#reply + 1] = name
  end
end
return reply
