-- Applies a change to the credits of a key; write-change.lua describes the change.
--
-- base: prefix of the API's names; pool: the key's pool before the change, if any; asked: the change, as a table;
-- keyId: the key; sequence: of the change
-- Returns the pool after it ('' = none, nil = unchanged), the credits left and whether some are owed, as in write-change.lua
local function changeCredits(base, pool, asked, keyId, sequence)
  -- Another key of the pool was changed; this key joins the pool of that key.
  if asked.op == 'join' then return asked.id, '', '' end
  local credits = creditsOf(base .. 'members', base .. 'held')
  local pools = base .. 'q:'
  local name = pools .. (pool or '')
  local after, left, owed = nil, '', ''
  local b, h, r, t, k = unpack(redis.call('HMGET', name, 'b', 'h', 'r', 't', 'k'))
  b, h, t = credits.refillIfDue(name, tonumber(b or 0), tonumber(h or 0), r, t, '', 0)
  local d = redis.call('HMGET', name, 'd')[1]
  if asked.op ~= 'none' and asked.refill then
    r = asked.refill
    if r == '' then r, t = nil, nil else t = select(2, credits.refillOf(r)) end
  end
  if asked.op == 'set' or asked.op == 'none' then
    -- Start a fresh pool: slices of the old pool become worthless once its name is replaced.
    local refilled = redis.call('HMGET', name, 'f')[1]
    if pool then redis.call('DEL', name) end
    after = ''
    if asked.op == 'set' then
      after, b, h, name = asked.id, asked.value, 0, pools .. asked.id
      left = credits.text(b)
      redis.call('HSET', name, 'k', k or keyId)
      if refilled then redis.call('HSET', name, 'f', refilled) end
    end
  else
    -- Doubles are exact up to 9e15, and the slices of holders are added to this number.
    if asked.op == 'increment' then b = math.min(b + asked.value, 4e15)
    elseif asked.op == 'decrement' then
      local isOwed
      b, isOwed = credits.take(name, b, asked.value, sequence)
      if isOwed then owed = '1' end
    end
    local others, gone = credits.scan(name, '', false)
    h = h - gone
    left = credits.text(math.max(0, b + others - credits.owed(name)))
  end
  if asked.op ~= 'none' then
    local whole = asked.op == 'set' and b or nil
    if asked.thresholds then
      local begun = string.match(d or '', '^%d+ %d+ ') or credits.text(math.max(tonumber(left), r and credits.refillOf(r) or 0)) .. ' 0 '
      d = asked.thresholds ~= '' and begun .. asked.thresholds
      if not d then redis.call('HDEL', name, 'd') end
    end
    if d then credits.measure(name, d, whole, tonumber(left) + credits.held(name)) end
    redis.call('HSET', name, 'b', credits.text(b), 'h', credits.text(h))
    if r then redis.call('HSET', name, 'r', r, 't', credits.text(t))
    else redis.call('HDEL', name, 'r', 't') end
  end
  return after, left, owed
end
