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
--      and nine for each: turn, spent ('-' = as said last), kept, what those that wait need, in their order, as 'cost x times' of each
--      run of equal ones ('1x7 60x1', '' = nobody waits), slice wanted,
--      and for a limit how much it is, the length of its windows, ms, the number of the window that spent and kept are of ('-' = none),
--      and for one that a request brings which of KEYS is its index
-- A pool: b credits that nobody holds, below 0 where more was taken off than was there; h the sum of what holders have to spend;
--   r refill, 'd amount' or 'm amount day'; t the next refill, Unix seconds; f the last one; l lost;
--   and of each holder '@' and its name → granted, spent, turn, how much of the latest grant is spoken for, and, where it was asked to
--   give back since, when, Unix ms
-- Returns for each {turn, status, granted, spent, spoken for, total, ms until the next refill, or until `lacking` fits, -1 = never,
--   lacking: the least need that was not met, 0 = all were}, and for a limit the number of the window, and ms until it ends
--   OK: who waits has what it needs; else those that need less than `lacking` have it, and of the others
--   NONE: so much is not left | SPOKEN: nor is it where all that was just spoken for is spent, of which others are asked | WAIT: others have enough, and are asked for it | HELD: they did not answer
--   NOREG: the name is no member, which can only settle | OLD: came too late | STALE: there is no such pool | FULL: requests brought too many limits
-- include ../../../shared/redis/credits.lua
-- include windows.lua
local members, held = KEYS[1], KEYS[2]
local member, channel, recall = ARGV[1], ARGV[2], tonumber(ARGV[3])
local credits = creditsOf(members, held)
local now, nowMs, text, field, numbers, live =
  credits.now, credits.nowMs, credits.text, credits.field, credits.numbers, credits.live
local windows = windowsOf(member, nowMs, text, numbers, live)
local DAY, ASKED_MS = 86400, 1000
local isLive = live(member)
local isKnown = isLive or redis.call('ZSCORE', held, member)
local count = math.max(redis.call('ZCARD', members), 1)
local replies, recalled = {}, {}

-- Has holders asked for what they have: for what they hold once a second, for what is only spoken for there once.
-- Returns how much of either is with those that did not answer in time
local function recallFrom(pool, holders)
  local silent, taken, isNews = 0, 0, false
  for _, holder in ipairs(holders) do
    local name, granted, spent, turn, spoken, asked = unpack(holder)
    local own, since = granted - spent - spoken, nowMs - (asked or 0)
    if not asked or since < 0 or own > 0 and since >= ASKED_MS then
      redis.call('HSET', pool, name, field(granted, spent, turn, spoken) .. ' ' .. text(nowMs))
      isNews = true
    elseif since >= recall then silent, taken = silent + own, taken + spoken end
  end
  if isNews then recalled[#recalled + 1] = string.match(pool, '([^:]*)$') end
  return silent, taken
end

-- Grants what is needed, as far as it fits, and a slice besides where all of it does. Where not, finds out what others have, and has
-- them asked for it. `kept` is what the holder has to spend.
-- Returns status, b and h after it, what is granted to the holder, how much of it is spoken for, and where something is lacking
-- the total, what is left for that, and how much is lacking
local function grant(scan, pool, b, h, granted, kept, needs, wanted)
  local rest, lacking = b + kept, nil
  for cost, times in string.gmatch(needs, '(%d+)x(%d+)') do
    cost, times = tonumber(cost), tonumber(times)
    local fit = math.max(0, math.min(times, math.floor(rest / cost)))
    rest = rest - fit * cost
    if fit < times then lacking = math.min(cost, lacking or cost) end
  end
  local spoken = math.max(0, b - rest)
  b, granted = b - spoken, granted + spoken
  if not lacking then
    local more = math.max(0, math.min(wanted, math.floor((b + kept) / (4 * count))) - kept)
    return 'OK', b - more, h + more, granted + more, spoken
  end
  local others, gone, out, holders = scan(pool, member, false)
  local spare, status = rest + others - lacking, 'WAIT'
  if spare + out - others < 0 then status = 'NONE'
  else
    local silent, taken = recallFrom(pool, holders)
    if spare < 0 then status = spare + out - others - taken < 0 and 'NONE' or 'SPOKEN'
    elseif spare < silent then status = 'HELD' end
  end
  return status, b, h - gone, granted, spoken, b + kept + others, rest + others, lacking
end

-- Fields of those that are gone add up: a newcomer clears them away where they are most of what is there.
-- Returns what h is to be lowered by
local function clear(scan, pool, mine)
  if mine or redis.call('HLEN', pool) <= 16 + 2 * count then return 0 end
  local _, gone = scan(pool, member, false)
  return gone
end

local function exchange(pool, turn, saidSpent, kept, needs, wanted)
  local b, h, r, t, mine = unpack(redis.call('HMGET', pool, 'b', 'h', 'r', 't', '@' .. member))
  if not b then return {turn, 'STALE'} end
  local granted, spent, last, spoken = numbers(mine)
  local said = saidSpent or spent
  if not isKnown or turn <= last or said < spent then return {turn, 'OLD'} end
  b, h = tonumber(b) + granted - (said + kept), tonumber(h or 0) - (granted - spent - spoken) + kept
  granted, spent, spoken = said + kept, said, 0

  -- What was spent was spent before: it is taken down first, so that what is due comes on top of no more than there is.
  local due
  b, h, due = credits.settle(pool, b, h - clear(credits.scan, pool, mine), r, t, member, kept)

  local status, total, _, lacking = 'NOREG', nil, nil, nil
  if isLive then
    status, b, h, granted, spoken, total, _, lacking = grant(credits.scan, pool, b, h, granted, kept, needs, wanted)
  end
  redis.call('HSET', pool, 'b', text(b), 'h', text(h), '@' .. member, field(granted, spent, turn, spoken))
  return {turn, status, granted, spent, spoken, total or b + h, due and (due - now) * 1000 or -1, lacking or 0}
end

-- The same for a rate limit. Who forgot what it spent has spent all that was granted to it; what is said of another window counts
-- for nothing in this one, for whoever has anything of it knows its number.
local function exchangeWindow(name, turn, saidSpent, kept, needs, wanted, limit, duration, number, index)
  if not isLive then return {turn, 'NOREG'} end
  if index and not windows.admits(index, name) then return {turn, 'FULL'} end
  local isNew, present, c, p, h, mine, left = windows.open(name, duration)
  local granted, spent, last, spoken = numbers(mine)
  local said = saidSpent
  if not said then said, kept = granted, 0
  elseif number ~= present then said, kept = 0, 0 end
  if turn <= last or number == present and said < spent then return {turn, 'OLD'} end
  c, h = c + said + kept - granted, h - (granted - spent - spoken) + kept - clear(windows.scan, name, mine)
  granted, spent = said + kept, said

  local before = windows.free(limit, duration, c, p, left)
  local status, b, total, most, lacking
  status, b, h, granted, spoken, total, most, lacking = grant(windows.scan, name, before, h, granted, kept, needs, wanted)
  c = c + before - b
  local isRefused = status == 'NONE' or status == 'SPOKEN'
  local wait = isRefused and windows.wait(limit, duration, c - (most - b), p, left, lacking) or -1
  windows.close(isNew, name, present, c, p, h, left, duration, field(granted, spent, turn, spoken), index)
  return {turn, status, granted, spent, spoken, total or b + h, wait, lacking or 0, present, left}
end

-- Names that left long ago make room, or fields would add up with every pod.
if isLive and redis.call('ZADD', held, text(now), member) == 1 then
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', held, '-inf', text(now - DAY), 'LIMIT', 0, 10)) do
    if live(name) then redis.call('ZADD', held, text(now), name)
    else redis.call('ZREM', held, name) end
  end
end
for i = 1, (#ARGV - 3) / 9 do
  local at = 9 * i - 5
  local limit, index = tonumber(ARGV[at + 5]), KEYS[tonumber(ARGV[at + 8]) or 0]
  replies[i] = (limit and exchangeWindow or exchange)(
    KEYS[i + 2], tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3], tonumber(ARGV[at + 4]),
    limit, tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7]), index)
end
for _, pool in ipairs(recalled) do redis.pcall('PUBLISH', channel, pool) end
return replies
