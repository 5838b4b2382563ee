#!lua flags=allow-oom
-- EXCHANGE: takes down what a verifier spent of some pools of credits, and of rate limits, takes back what it does not keep, and
-- grants it more.
-- All numbers are absolute: what was granted to a holder and what it spent, since its name began. So a call that is lost, late or
-- doubled changes nothing for good. What is granted counts as gone until its holder gives it back. allow-oom: what was
-- spent must be taken down on a full Redis, too.
--
-- KEYS 1 members  2 held: sorted set, every name that has a field in a pool → its latest exchange, Unix seconds 3… pools and limits,
--      and behind them indexes of the limits that requests bring
-- ARGV 1 member  2 channel of recalls  3 ms that a recall may take
--      and ten for each: turn, spent ('-' = as said last), kept, need, least part of the need that is of use, slice wanted,
--      and for a limit how much it is, the length of its windows, ms, the number of the window that spent and kept are of ('-' = none),
--      and for one that a request brings which of KEYS is its index
-- A pool: b credits that nobody holds, below 0 where more was taken off than was there; h the sum of what holders have to spend;
--   r refill, 'd amount' or 'm amount day'; t the next refill, Unix seconds; f the last one; w the latest recall, Unix ms; l lost;
--   and of each holder '@' and its name → granted, spent, turn, and how much of the latest grant is spoken for
-- Returns for each {turn, status, granted, spent, spoken for, total, ms until the next refill, or until `least` fits, -1 = never}
--   and for a limit the number of the window, and ms until it ends
--   OK | NONE: too little is left | WAIT: others have enough, and are asked for it | HELD: they did not answer
--   NOREG: the name is no member, which can only settle | OLD: came too late | STALE: there is no such pool | FULL: requests brought too many limits
-- include ../../../shared/redis/credits.lua
-- include windows.lua
local members, held = KEYS[1], KEYS[2]
local member, channel, recall = ARGV[1], ARGV[2], tonumber(ARGV[3])
local credits = creditsOf(members, held)
local now, nowMs, text, field, numbers, live =
  credits.now, credits.nowMs, credits.text, credits.field, credits.numbers, credits.live
local windows = windowsOf(member, nowMs, text, numbers, live)
local DAY = 86400
local isLive = live(member)
local isKnown = isLive or redis.call('ZSCORE', held, member)
local count = math.max(redis.call('ZCARD', members), 1)
local replies, recalled = {}, {}

-- Grants what is needed and a slice besides; where that is not there, finds out what others have, and has them asked for it.
-- `kept` is what the holder has to spend; `scan` returns what other live holders have, and what h is to be lowered by.
-- Returns status, b and h after it, what is granted to the holder, how much of it is spoken for, and the total where it is known
local function grant(scan, pool, b, h, w, granted, kept, need, least, wanted)
  if b >= least or need == 0 then
    local spoken = math.max(0, math.min(need, b))
    local slice = math.min(wanted, math.floor((b - spoken + kept) / (4 * count)))
    local more = math.max(0, slice - kept)
    return 'OK', b - spoken - more, h + more, granted + spoken + more, spoken
  end
  local others, gone = scan(pool)
  w = w and nowMs - w < 1000 and tonumber(w)
  local status = 'WAIT'
  if b + others < least then status = 'NONE'
  elseif w and nowMs - w >= recall then status = 'HELD'
  elseif not w then
    redis.call('HSET', pool, 'w', text(nowMs))
    recalled[#recalled + 1] = string.match(pool, '([^:]*)$')
  end
  return status, b, h - gone, granted, 0, b + kept + others
end

local function scanPool(pool)
  return credits.scan(pool, member, false)
end

local function exchange(pool, turn, saidSpent, kept, need, least, wanted)
  local b, h, r, t, w, mine = unpack(redis.call('HMGET', pool, 'b', 'h', 'r', 't', 'w', '@' .. member))
  if not b then return {turn, 'STALE'} end
  local granted, spent, last, spoken = numbers(mine)
  local said = saidSpent or spent
  if not isKnown or turn <= last or said < spent then return {turn, 'OLD'} end
  b, h = tonumber(b) + granted - (said + kept), tonumber(h or 0) - (granted - spent - spoken) + kept
  granted, spent, spoken = said + kept, said, 0

  local due
  b, h, due = credits.refill(pool, b, h, r, t, member, kept)

  local status, total = 'NOREG', nil
  if isLive then
    status, b, h, granted, spoken, total = grant(scanPool, pool, b, h, w, granted, kept, need, least, wanted)
  end
  redis.call('HSET', pool, 'b', text(b), 'h', text(h), '@' .. member, field(granted, spent, turn, spoken))
  return {turn, status, granted, spent, spoken, total or b + h, due and (due - now) * 1000 or -1}
end

-- The same for a rate limit. Who forgot what it spent has spent all that was granted to it; what is said of another window counts
-- for nothing in this one, for whoever has anything of it knows its number.
local function exchangeWindow(name, turn, saidSpent, kept, need, least, wanted, limit, duration, number, index)
  if not isLive then return {turn, 'NOREG'} end
  if index and not windows.admits(index, name) then return {turn, 'FULL'} end
  local isNew, present, c, p, h, w, mine, left = windows.open(name, duration)
  local granted, spent, last, spoken = numbers(mine)
  local said = saidSpent
  if not said then said, kept = granted, 0
  elseif number ~= present then said, kept = 0, 0 end
  if turn <= last or number == present and said < spent then return {turn, 'OLD'} end
  c, h = c + said + kept - granted, h - (granted - spent - spoken) + kept
  granted, spent = said + kept, said

  local before = windows.free(limit, duration, c, p, left)
  local status, b, total
  status, b, h, granted, spoken, total = grant(windows.scan, name, before, h, w, granted, kept, need, least, wanted)
  c = c + before - b
  local wait = status == 'NONE' and windows.wait(limit, duration, c - (total - b - kept), p, left, least) or -1
  windows.close(isNew, name, present, c, p, h, left, duration, field(granted, spent, turn, spoken), index)
  return {turn, status, granted, spent, spoken, total or b + h, wait, present, left}
end

-- Names that left long ago make room, or fields would add up with every pod.
if isLive and redis.call('ZADD', held, text(now), member) == 1 then
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', held, '-inf', text(now - DAY), 'LIMIT', 0, 10)) do
    if live(name) then redis.call('ZADD', held, text(now), name)
    else redis.call('ZREM', held, name) end
  end
end
for i = 1, (#ARGV - 3) / 10 do
  local at = 10 * i - 6
  local limit, index = tonumber(ARGV[at + 6]), KEYS[tonumber(ARGV[at + 9]) or 0]
  replies[i] = (limit and exchangeWindow or exchange)(
    KEYS[i + 2], tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]),
    tonumber(ARGV[at + 5]), limit, tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8]), index)
end
for _, pool in ipairs(recalled) do redis.pcall('PUBLISH', channel, pool) end
return replies
