#!lua
-- REROLL: creates a key that replaces another and has all its fields, and sets when the old key ends, atomically. The
-- new key's two pointers exist. Credits are not copied: both keys name the same pool.
--
-- new, newLong, newId: the new key's record, long meta and id; secretHash, start, bytes: of its secret: its first characters,
--   and its random bytes, '' = the usual number; content: digest of its id and secret
-- latest: end of the old key, Unix ms; kept: creations to keep; most: maximum number of keys that share a pool
-- call: name of this call, a space, and how long the old key stays valid; '' = none. A repeated call within an hour replaces
--   the key that the first call made, unless that key was itself rerolled
-- all others: see write-change.lua; of the key to be rerolled
-- Returns {'OK', when the old key ends, '' or the key that was deleted and the hash of its secret, what write-change.lua
--         returns from the sequence on}
--         | {'NOT_FOUND'} | {'CONFLICT'} | {'ENDED'}: the key has expired, so there is nothing to reroll
--         | {'TOO_LONG', the longest lifetime of the API, ms, the key whose expiry the new one would have}: it would live longer
--         | {'REUSED'}: an earlier call of this name gave another time
--         | {'REROLLED', the key that replaced it} | {'SHARED', keys that share its credits}: too many
-- include require-writes.lua
-- include gate.lua
-- include server.lua
-- include ../../metering/plug.lua
-- include operations.lua
-- include change.lua
-- include creation.lua
-- include lifetime.lua
requireWrites(head)

local p, version, expires, successor, madeBy, pool = unpack(redis.call('HMGET', record, 'p', 'v', 'x', 'T', 'Y', 'q'))
if not p or redis.call('HEXISTS', head, 'deleted') == 1 then return {'NOT_FOUND'} end
version = version or '0'
if condition ~= '' and condition ~= version then return {'CONFLICT'} end
local AGAIN_MS = 3600000
local isAgain = false
if successor then
  local made, usedBy = unpack(redis.call('HMGET', base .. 'k:' .. successor, 'c', 'T'))
  isAgain = call ~= '' and string.match(call, '%S+') == string.match(madeBy or '', '%S+')
    and made and not usedBy and tonumber(now) - tonumber(made) <= AGAIN_MS
  if not isAgain then return {'REROLLED', successor} end
  if call ~= madeBy then return {'REUSED'} end
end
if not isAgain and expires and tonumber(expires) <= tonumber(now) then return {'ENDED'} end
if redis.call('EXISTS', new) == 1 then return {'CONFLICT'} end
local sharing = sharingOf()
local sharers = pool and sharing(base .. 'q:' .. pool) or {}

-- If the call is repeated, the first answer was lost and nobody has the secret that it made, so that key is replaced.
-- It still has the fields that the old key had. If too many keys share the credits, the first that was rerolled and
-- has ended is deleted.
local source, sourceLong, deleted = record, long, isAgain and successor
if isAgain then
  source, sourceLong = base .. 'k:' .. successor, base .. 'm:' .. successor
elseif #sharers >= tonumber(most) then
  for _, each in ipairs(sharers) do
    local ended, rerolled = unpack(redis.call('HMGET', base .. 'k:' .. each, 'x', 'T'))
    if each ~= keyId and rerolled and ended and tonumber(ended) <= tonumber(now) then
      deleted = each
      break
    end
  end
  if not deleted then return {'SHARED', #sharers} end
end
local refusal = tooLong(redis.call('HGET', head, 'longest'), now, redis.call('HGET', source, 'x'))
if refusal then return {refusal[1], refusal[2], isAgain and successor or keyId} end
local gone = deleted and deleted .. ' ' .. redis.call('HGET', base .. 'k:' .. deleted, 'p') or ''
local own = {p = true, s = true, b = true, c = true, i = true, u = true, v = true, T = true, Y = true, F = true, K = true}
local fields = {'p', secretHash, 's', start, 'c', now, 'F', keyId}
local has = redis.call('HGETALL', source)
if redis.call('HEXISTS', source, 'W') == 0 then
  has[#has + 1] = 'W'
  has[#has + 1] = keyId
end
for i = 1, #has, 2 do
  if not own[has[i]] then
    fields[#fields + 1] = has[i]
    fields[#fields + 1] = has[i + 1]
  end
end
if bytes ~= '' then
  fields[#fields + 1] = 'b'
  fields[#fields + 1] = bytes
end
local number = addCreation(head, creations, kept, content .. ' ' .. version)
redis.call('HSET', new, 'i', number, unpack(fields))
local owner, apart, newExpires, managedBy = unpack(redis.call('HMGET', new, 'o', 'M', 'x', 'B'))
if newExpires then redis.call('ZADD', base .. 'due', 0, newId) end
if managedBy then redis.call('ZADD', base .. 'by', 0, managedBy .. '\0' .. newId) end
if apart then redis.call('SET', newLong, redis.call('GET', sourceLong)) end
redis.call('ZADD', index, number, newId)
if owner then redis.call('ZADD', base .. 'o:' .. owner, number, newId) end
if pool then
  if #sharers == 0 then sharers = {keyId} end
  sharers[#sharers + 1] = newId
  redis.call('HSET', base .. 'q:' .. pool, 'k', table.concat(sharers, ' '))
end

-- The old key's change comes last: a follower that has it has all of them.
local function write(operation, id, ...)
  return change(operation, id, base .. 'k:' .. id, base .. 'm:' .. id, '', '1', {...})
end
if deleted then write('delete', deleted) end
local ends = expires and tonumber(expires) < tonumber(latest) and expires or latest
local written = write('update', keyId, 'x', ends)
redis.call('HSET', record, 'T', newId)
if call ~= '' then redis.call('HSET', record, 'Y', call) end
return {'OK', ends, gone, unpack(written, 2)}
