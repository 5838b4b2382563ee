#!lua flags=allow-oom
-- Completes a change by fence: no lease from before it can be alive on the caller's clock. A follower that has not
-- acknowledged it and was granted no lease since is removed, because it holds none. Any other that has not acknowledged
-- it is killed (a score below 0: its next SYNC is refused). That one still counts as a laggard; the caller removes it one
-- fence later (reap-members), because it may hold a lease granted after this change.
-- A score says what was granted: at a whole number nothing beyond what is acknowledged, at a half more (sync.lua). But a
-- failover may lose the half and keep the change. So only the server that wrote the change believes it, and only of followers whose
-- protocol has it.
-- The score of a kill names the kill: a failover may lose one and somebody kill the same follower anew, and what
-- waited for the lost kill must not remove it too early. One that is killed already keeps its kill.
--
-- KEYS 1 head  2 log  3 members
-- ARGV 1 sequence  2 its hash  3 the kill: a random integer below 0  4 id of the server that wrote it, '' = unknown
-- Returns {'LOST'} | {'INTACT', followers, Lf, how many this removed, name of each, …, name of each that this killed, …}
-- include server.lua
local head, log, members = unpack(KEYS)
local sequence, hash, kill, writer = unpack(ARGV)
local NOTING_PROTOCOL = 4

local s, Lf = unpack(redis.call('HMGET', head, 's', 'Lf'))
s = string.match(s or '0', '%d+$')
if tonumber(s) < tonumber(sequence) then return {'LOST'} end
local entry = redis.call('XRANGE', log, sequence .. '-0', sequence .. '-0')[1]
if entry and entry[2][2] ~= hash then return {'LOST'} end

local isWriter = writer ~= '' and writer == serverId()
local followers = redis.call('ZCARD', members)
local removed, killed = {}, {}
-- Also whoever has a score above the head, which is nobody's acknowledgement.
for _, range in ipairs({{0, '(' .. sequence}, {'(' .. s, '+inf'}}) do
  local from, to = unpack(range)
  local behind = redis.call('ZRANGEBYSCORE', members, from, to, 'WITHSCORES')
  for i = 1, #behind, 2 do
    local name, score = behind[i], tonumber(behind[i + 1])
    local notes = tonumber(string.match(name, '^(%d%d?%d?)%.') or 1) >= NOTING_PROTOCOL
    if isWriter and notes and score < tonumber(sequence) and score % 1 == 0 then
      redis.call('ZREM', members, name)
      removed[#removed + 1] = name
    else
      redis.call('ZADD', members, 'XX', kill, name)
      killed[#killed + 1] = name
    end
  end
end
local reply = {'INTACT', followers, Lf or '0', #removed}
for _, names in ipairs({removed, killed}) do
  for _, name in ipairs(names) do reply[#reply + 1] = name end
end
return reply
