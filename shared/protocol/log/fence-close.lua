#!lua flags=allow-oom
-- Completes a change by fence: on the caller's clock, no lease granted before the change can be alive. A follower
-- that has not acknowledged the change and has been granted no lease since then is removed, because it has no lease.
-- Any other follower that has not acknowledged it is killed (a score below 0: its next SYNC is refused). A killed
-- follower still counts as a laggard; the caller removes it one fence later (reap-members), because it may have a
-- lease granted after this change.
--
-- The score tells what a follower was granted. A whole number: nothing beyond what it acknowledged. A half: more
-- (sync.lua). But a failover may lose the half and keep the change. So the half is trusted only on the server that
-- wrote the change.
--
-- The score of a kill identifies the kill: a failover may lose a kill and another caller kill the same follower
-- again, and the caller who waited for the lost kill must not remove the follower too early. A follower that is
-- already killed keeps its score.
--
-- sequence, hash: of the change; kill: a random integer below 0; writer: id of the server that wrote the change, '' = unknown
-- Returns {'LOST'} | {'INTACT', followers, Lf, how many were removed, name of each, …, name of each that was killed, …}
-- include server.lua

local s, Lf = unpack(redis.call('HMGET', head, 's', 'Lf'))
s = s or '0'
if tonumber(s) < tonumber(sequence) then return {'LOST'} end
local entry = redis.call('XRANGE', log, sequence .. '-0', sequence .. '-0')[1]
if entry and entry[2][2] ~= hash then return {'LOST'} end

local isWriter = writer ~= '' and writer == serverId()
local followers = redis.call('ZCARD', members)
local removed, killed = {}, {}
-- The second range: a score above the head acknowledges nothing real.
for _, range in ipairs({{0, '(' .. sequence}, {'(' .. s, '+inf'}}) do
  local from, to = unpack(range)
  local behind = redis.call('ZRANGEBYSCORE', members, from, to, 'WITHSCORES')
  for i = 1, #behind, 2 do
    local name, score = behind[i], tonumber(behind[i + 1])
    if isWriter and score < tonumber(sequence) and score % 1 == 0 then
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
