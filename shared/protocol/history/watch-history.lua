#!lua flags=allow-oom
-- Compares the history of an API with a mark: an entry that a control plane saw before. Refuses a history that is older than
-- a firm mark: followers get no lease until somebody accepts it (accept-history.lua). Not flagged `no-writes`: a deposed
-- primary, whose history may be shorter, refuses to answer.
--
-- created, generation: of the API when the mark was made; created '' = no mark
-- sequence, hash: of the entry
-- firm: '1' = the entry was on the disk and on all replicas
-- replicas: '1' = the next mark is the latest entry that is known to be on all of them
-- Returns {'NONE'} if there is no such API
--         | {state, created, generation, '1' if it is deleted, sequence and hash of the next mark, refusal, sequence of the head}
--   state: SAME | NEWER, of a later life of the API or accepted since | OLDER | REFUSED, by this call
--   refusal: '' or generation, sequence and hash of the mark that is missing, the sequence of the head at that time, and the
--     time of creation of the mark; of what several control planes miss, the latest
local c, Z, s, h, X, V, d, deleted = unpack(redis.call('HMGET', head, 'c', 'Z', 's', 'h', 'X', 'V', 'd', 'deleted'))
if not c then return {'NONE'} end
Z, s, h, X = Z or '0', s or '0', h or '', X or ''

-- Returns the hash of an entry; nil if the log no longer reaches back to it.
local function hashAt(wanted)
  if wanted == s then return h end
  local entry = redis.call('XRANGE', log, wanted .. '-0', wanted .. '-0')[1]
  return entry and entry[2][2]
end

-- Compares two lists of numbers by the first that differs.
local function isLater(a, b)
  for i, number in ipairs(a) do
    if tonumber(number) ~= tonumber(b[i]) then return tonumber(number) > tonumber(b[i]) end
  end
  return false
end

-- Tells whether an acceptance since the mark was made names it or a later entry. A generation alone does not: whoever
-- accepted may not have known of this mark.
local function isAccepted()
  local life, number = string.match(V or '', '^(%d+) (%d+)$')
  local isSince = created ~= c or tonumber(generation) < tonumber(Z)
  return life and isSince and not isLater({created, sequence}, {life, number})
end

-- Tells whether this history contains the entry although somebody accepted it since, for want of another.
local function isKept()
  if created ~= c or tonumber(generation) >= tonumber(Z) then return false end
  return sequence == '0' or tonumber(s) >= tonumber(sequence) and hashAt(sequence) == hash
end

local state = 'SAME'
if created ~= '' then
  if tonumber(c) > tonumber(created) or isAccepted() or isKept() then state = 'NEWER'
  elseif c ~= created or Z ~= generation or tonumber(s) < tonumber(sequence) then state = 'OLDER'
  else
    local found = hashAt(sequence)
    if found and found ~= hash then state = 'OLDER' end
  end
end
if state == 'OLDER' and firm == '1' then
  local g, n, life = string.match(X, '^(%d+) (%d+) %S* %d+ ?(%d*)')
  -- An older release notes no life.
  if life == '' then life = c end
  if not g or isLater({created, generation, sequence}, {life, g, n}) then
    X = generation .. ' ' .. sequence .. ' ' .. hash .. ' ' .. s .. ' ' .. created
    redis.call('HSET', head, 'X', X)
    if not g then state = 'REFUSED' end
  end
end
local latest = replicas == '1' and (d or '0') or s
return {state, c, Z, deleted and '1' or '0', latest, hashAt(latest) or '', X, s}
