#!lua flags=allow-oom
-- EXCHANGE: takes down what a verifier spent of some pools of credits, takes back what it does not keep, and grants it more.
-- All numbers are absolute: what was granted to a holder and what it spent, since its name began. So a call that is lost, late or
-- doubled changes nothing for good. What is granted counts as gone until its holder gives it back. allow-oom: what was
-- spent must be taken down on a full Redis, too.
--
-- KEYS 1 members  2 held: sorted set, every name that has a field in a pool → its latest exchange, Unix seconds  3… pools
-- ARGV 1 member  2 channel of recalls  3 ms that a recall may take
--      and six for each pool: turn, spent ('-' = as said last), kept, need, least part of the need that is of use, slice wanted
-- A pool: b credits that nobody holds, below 0 where more was taken off than was there; h the sum of what holders have to spend;
--   r refill, 'd amount' or 'm amount day'; t the next refill, Unix seconds; f the last one; w the latest recall, Unix ms; l lost;
--   and of each holder '@' and its name → granted, spent, turn, and how much of the latest grant is spoken for
-- Returns for each pool {turn, status, granted, spent, spoken for, total, ms until the next refill, -1 = never}
--   OK | NONE: too little is left | WAIT: others have enough, and are asked for it | HELD: they did not answer
--   NOREG: the name is no member, which can only settle | OLD: came too late | STALE: there is no such pool
-- include credits.lua
local members, held = KEYS[1], KEYS[2]
local member, channel, recall = ARGV[1], ARGV[2], tonumber(ARGV[3])
local credits = creditsOf(members, held)
local now, nowMs, text, numbers, live = credits.now, credits.nowMs, credits.text, credits.numbers, credits.live
local DAY = 86400
local isLive = live(member)
local isKnown = isLive or redis.call('ZSCORE', held, member)
local count = math.max(redis.call('ZCARD', members), 1)
local replies, recalled = {}, {}

local function exchange(pool, turn, saidSpent, kept, need, least, wanted)
  local b, h, r, t, w, mine = unpack(redis.call('HMGET', pool, 'b', 'h', 'r', 't', 'w', '@' .. member))
  if not b then return {text(turn), 'STALE'} end
  local granted, spent, last, spoken = numbers(mine)
  local said = tonumber(saidSpent) or spent
  if not isKnown or turn <= last or said < spent then return {text(turn), 'OLD'} end
  b, h = tonumber(b) + granted - (said + kept), tonumber(h or 0) - (granted - spent - spoken) + kept
  granted, spent, spoken = said + kept, said, 0

  local due
  b, h, due = credits.refill(pool, b, h, r, t, member, kept)

  local status, total = isLive and 'OK' or 'NOREG', nil
  if isLive and (b >= least or need == 0) then
    spoken = math.max(0, math.min(need, b))
    local slice = math.min(wanted, math.floor((b - spoken + kept) / (4 * count)))
    local more = math.max(0, slice - kept)
    b, h, granted = b - spoken - more, h + more, granted + spoken + more
  elseif isLive then
    local others, gone = credits.scan(pool, member, false)
    h = h - gone
    total = b + kept + others
    w = w and nowMs - w < 1000 and tonumber(w)
    if b + others < least then status = 'NONE'
    elseif w and nowMs - w >= recall then status = 'HELD'
    else
      status = 'WAIT'
      if not w then
        redis.call('HSET', pool, 'w', text(nowMs))
        recalled[#recalled + 1] = string.match(pool, '([^:]*)$')
      end
    end
  end
  redis.call('HSET', pool, 'b', text(b), 'h', text(h), '@' .. member, text(granted, spent, turn, spoken))
  return {text(turn), status, text(granted), text(spent), text(spoken), text(total or b + h), text(due and (due - now) * 1000 or -1)}
end

-- Names that left long ago make room, or fields would add up with every pod.
if isLive and redis.call('ZADD', held, text(now), member) == 1 then
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', held, '-inf', text(now - DAY), 'LIMIT', 0, 10)) do
    if live(name) then redis.call('ZADD', held, text(now), name)
    else redis.call('ZREM', held, name) end
  end
end
for i = 3, #KEYS do
  local at = 4 + (i - 3) * 6
  local turn, spent, kept, need, least, wanted = unpack(ARGV, at, at + 5)
  replies[i - 2] = exchange(
    KEYS[i], tonumber(turn), spent, tonumber(kept), tonumber(need), tonumber(least), tonumber(wanted))
end
for _, pool in ipairs(recalled) do redis.pcall('PUBLISH', channel, pool) end
return replies
