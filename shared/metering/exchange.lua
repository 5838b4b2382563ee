#!lua flags=allow-oom
-- EXCHANGE: records what a verifier spent from some pools of credits and rate limits, takes back what it does not keep, and
-- grants it more.
-- Both numbers of a holder are totals since its name began: all that was granted to it, and all that it spent. So a call
-- that is lost, late or repeated does no lasting harm. Granted credits count as gone until their holder gives them back.
-- allow-oom: even a full Redis must record what was spent.
--
-- held: sorted set, every name that has a field in a pool → its latest exchange, Unix seconds
-- names: of pools and limits, then of the indexes of the limits that questions define
-- channel: of recalls; recall: ms that it may take
-- turns: ten for each pool or limit: turn; spent ('-' = as last reported); the part of it that is held and may come back, which
--   for credits the follower's position in the log follows, and what it knows of a divide (pay in credits.lua); kept;
--   needs of the waiting requests, in order, as 'cost x times' for each run of equal needs ('1x7 60x1', '' = none); slice wanted;
--   for a limit also its amount, the length of its windows in ms or their calendar, followed by the thresholds if it has any (0 =
--   places, of which `spent` are taken now), and the window of spent and kept ('-' = none);
--   for a limit that a question defines also the place of its index in `names`
-- A pool's hash:
--   b credits that nobody has; h the sum of what holders can spend; e the sum of what work holds and may give back
--   o credits that a decrement did not find: what comes back from before it pays them, and an increment does not
--   r refill, see refillText in credits.ts; t the next refill, Unix seconds; f the last refill; l lost credits
--   k the keys that share it; z since when it has no credits, Unix ms
--   d the credits of which its thresholds are per cents, the highest threshold that was told of (0 = none), and the thresholds
--   '@' and a holder's name → granted, spent, turn, spoken for; and Unix ms of the last recall, until the holder's next turn
--   "Spoken for" is the part of the latest grant that waiting requests will spend immediately.
--   '~' and a holder's name → the part of spent that work holds; absent = 0
--   '!' and a holder's name → what it may give back of what it had before the latest decrement, absent = 0; the sequence of that
--   change; and the divide with what came back since, if there is one (pay in credits.lua)
-- Returns for each {status, turn, granted, spent, spoken for, total, ms, lacking}; for credits also the most that there can be
--   without a change (-1 = unknown), -1, and 1 if this turn is a divide, else 0; for a limit its window and the ms left in it (of
--   places -1, -1), 0, and all that counts as gone now: the lowest limit under which this could have been granted
--   ms: until the next refill, or for a limit until `lacking` fits; -1 = never
--   lacking: the smallest need that was not met; 0 = all needs were met
--   OK: all needs were met. In the next four cases the needs below `lacking` were met, and for the others:
--   NONE: the pool has too little
--   SPOKEN: the pool may have too little, which depends on recalled holders whose credits are spoken for
--   WAIT: other holders have enough, and are recalled
--   HELD: other holders have enough, but did not answer the recall
--   NOREG: the name is no member, and gets nothing more | OLD: the turn came too late | STALE: no such pool
--   FULL: questions defined too many limits
-- include credits.lua
-- include windows.lua
recall = tonumber(recall)
local credits = creditsOf(members, held)
local now, nowMs, text, field, numbers, live =
  credits.now, credits.nowMs, credits.text, credits.field, credits.numbers, credits.live
local windows = windowsOf(member, nowMs, text, numbers, live, credits.periodOf, credits.hold)
local DAY, ASKED_MS = 86400, 1000
local isLive = live(member)
local isKnown = isLive or redis.call('ZSCORE', held, member)
local count = math.max(redis.call('ZCARD', members), 1)
local replies, recalled = {}, {}

-- Recalls credits from holders: credits that they can spend once a second, credits that are only spoken for once.
-- Returns the sum of what those can spend who did not answer in time
local function recallFrom(pool, holders)
  local silent, isNews = 0, false
  for _, holder in ipairs(holders) do
    local name, granted, spent, turn, spoken, asked = unpack(holder)
    local own, since = granted - spent - spoken, nowMs - (asked or 0)
    if not asked or since < 0 or own > 0 and since >= ASKED_MS then
      redis.call('HSET', pool, name, field(granted, spent, turn, spoken) .. ' ' .. text(nowMs))
      isNews = true
    elseif since >= recall then silent = silent + own end
  end
  if isNews then recalled[#recalled + 1] = string.match(pool, '([^:]*)$') end
  return silent
end

-- Grants all needs that fit, and if all of them fit, a slice as well. Otherwise adds up the credits of other holders, and
-- recalls them. `kept` is what the holder can already spend.
-- Returns status, the new b and h, what is granted to the holder, the part of it that is spoken for; and if a need is
-- lacking, the total, what is left for that need, and the need
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
    local silent = recallFrom(pool, holders)
    -- Who is late may not have spent what is spoken for.
    if spare < 0 then status = 'SPOKEN'
    elseif spare < silent then status = 'HELD' end
  end
  return status, b, h - gone, granted, spoken, b + kept + others, rest + others, lacking
end

-- Removes the fields of former holders if they are most of the fields. Each new holder does this; otherwise the fields would
-- add up.
-- Returns the amount by which to lower h
local function clear(scan, pool, mine)
  if mine or redis.call('HLEN', pool) <= 16 + 2 * count then return 0 end
  local _, gone = scan(pool, member, false)
  return gone
end

-- Remembers for the control plane, which sends an event, that a pool has no credits any more. `since` is its field z.
local WEEK = 604800
local function noteEmpty(pool, total, since)
  if total > 0 then
    if since then redis.call('HDEL', pool, 'z') end
  elseif not since then
    local base, id = string.match(pool, '^(.*:)q:(.*)$')
    redis.call('HSET', pool, 'z', text(nowMs))
    redis.call('HSET', base .. 'u:!x', id, text(nowMs))
    redis.call('EXPIRE', base .. 'u:!x', WEEK)
  end
end

-- The same of each threshold above `told` that was passed. Returns the highest of these.
-- ends: of a limit the end of the window, Unix ms
local function notePassed(name, thresholds, told, whole, left, ends)
  local base, id = string.match(name, '^(.*:)[qw]:(.*)$')
  local highest
  for _, percent in ipairs(credits.passedOf(thresholds, whole, left)) do
    if percent > told then
      highest = percent
      redis.call('HSET', base .. 'u:!x', id .. ' ' .. percent, table.concat({text(nowMs), text(whole), text(math.max(0, left)), ends}, ' '))
      redis.call('EXPIRE', base .. 'u:!x', WEEK)
    end
  end
  return highest
end

-- Goes through the other holders of places, and removes those that are no members any more.
-- Returns the places of live ones that are free, those that they may give back, all that members have, and for each that may
-- give some back {its field, and the numbers in it}. What is spoken for may come back: a question without a hold only looks.
local function scanPlaces(name)
  local free, others, held, holders = 0, 0, 0, {}
  local fields = redis.call('HGETALL', name)
  for i = 1, #fields, 2 do
    local holder = string.sub(fields[i], 2)
    local granted, taken, turn, spoken, asked = numbers(fields[i + 1])
    if holder == member then granted = 0
    elseif not redis.call('ZSCORE', members, holder) then redis.call('HDEL', name, fields[i])
    else
      held = held + granted
      if live(holder) then
        free, others = free + granted - taken - spoken, others + granted - taken
        if granted > taken then holders[#holders + 1] = {fields[i], granted, taken, turn, 0, asked} end
      end
    end
  end
  return free, others, held, holders
end

-- Returns what is spoken for in all: it may be spent, or held, which its holders tell later.
local function spokenOf(pool)
  local sum = 0
  local fields = redis.call('HGETALL', pool)
  for i = 1, #fields, 2 do
    local name = string.match(fields[i], '^@(.*)$')
    if name and live(name) then sum = sum + select(4, numbers(fields[i + 1])) end
  end
  return sum
end

local function exchange(pool, turn, saidSpent, told, kept, needs, wanted)
  local b, h, r, t, mine, since, d, owed, holds =
    unpack(redis.call('HMGET', pool, 'b', 'h', 'r', 't', '@' .. member, 'z', 'd', 'o', '~' .. member))
  if not b then return {'STALE', turn} end
  local granted, spent, last, spoken = numbers(mine)
  local said = saidSpent or spent
  if not isKnown or turn <= last then return {'OLD', turn} end
  local back = granted - (said + kept)
  b, h = tonumber(b) + back, tonumber(h or 0) - (granted - spent - spoken) + kept
  granted, spent, spoken = said + kept, said, 0
  redis.call('HSET', pool, '@' .. member, field(granted, spent, turn, 0))
  credits.hold(pool, member, tonumber(holds or 0), told[1])
  local paid, isDivide = 0, false
  if owed then paid, isDivide = credits.pay(pool, tonumber(owed), member, turn, back, kept, told) end
  b = b - paid

  -- Records the spending before the refill, because it happened earlier: the refill must see only what is really left.
  local due
  b, h, due = credits.refillIfDue(pool, b, h - clear(credits.scan, pool, mine), r, t, member, kept)

  local status, total, _, lacking = 'NOREG', nil, nil, nil
  if isLive then
    status, b, h, granted, spoken, total, _, lacking = grant(credits.scan, pool, b, h, granted, kept, needs, wanted)
  end
  redis.call('HSET', pool, 'b', text(b), 'h', text(h), '@' .. member, field(granted, spent, turn, spoken))
  local left = b + h + credits.held(pool)
  if left <= 0 then left = left + spokenOf(pool) end
  noteEmpty(pool, left, since)
  if d then
    local whole, told, thresholds = string.match(redis.call('HMGET', pool, 'd')[1], '^(%d+) (%d+) (.*)$')
    whole, told = tonumber(whole), tonumber(told)
    local passed = credits.passedOf(thresholds, whole, left)
    if (passed[#passed] or 0) > told then left = b + h + credits.held(pool) + spokenOf(pool) end
    local highest = notePassed(pool, thresholds, told, whole, left)
    if highest then redis.call('HSET', pool, 'd', text(whole) .. ' ' .. highest .. ' ' .. thresholds) end
  end
  local ms = due and (due - now) * 1000 or -1
  -- What a refill brings, or all that is not spent for good.
  local most = r and credits.refillOf(r) or -1
  if lacking then most = math.max(most, b + h + credits.held(pool) + spokenOf(pool)) end
  return {status, turn, granted, spent, spoken, total or b + h, ms, lacking or 0, most, -1, isDivide and 1 or 0}
end

-- Does the same for a rate limit. If a holder forgot its spending, it counts as having spent its whole grant. Numbers for
-- another window do not count, because a holder of anything in this window knows the window's number.
local function exchangeWindow(name, turn, saidSpent, holding, kept, needs, wanted, limit, length, number, index)
  if not isLive then return {'NOREG', turn, 0, 0, 0, 0, -1, 0} end
  if index and not windows.admits(index, name) then return {'FULL', turn} end
  local duration, thresholds = string.match(length, '^(%S+) ?(.*)$')
  local isNew, present, c, p, h, mine, held, left, slides = windows.open(name, duration)
  local granted, spent, last, spoken = numbers(mine)
  local said = saidSpent
  if not said then said, holding, kept = granted, 0, 0
  elseif number ~= present then said, holding, kept = 0, 0, 0 end
  -- What is spent for good never comes back.
  if turn <= last or number == present and said - holding < spent - held then return {'OLD', turn} end
  credits.hold(name, member, held, holding)
  c, h = c + said + kept - granted, h - (granted - spent - spoken) + kept - clear(windows.scan, name, mine)
  granted, spent = said + kept, said

  local before = windows.free(limit, slides, c, p, left)
  local status, b, total, most, lacking
  status, b, h, granted, spoken, total, most, lacking = grant(windows.scan, name, before, h, granted, kept, needs, wanted)
  c = c + before - b
  -- Work that ends may give back what is lacking.
  if status == 'NONE' and most + credits.held(name) >= lacking then status = 'SPOKEN' end
  local isRefused = status == 'NONE' or status == 'SPOKEN'
  local wait = isRefused and windows.wait(limit, slides, c - (most - b), p, left, lacking) or -1
  windows.close(isNew, name, present, c, p, h, left, slides, field(granted, spent, turn, spoken), index)
  if thresholds ~= '' then
    local told = tonumber(redis.call('HMGET', name, 'd')[1] or 0)
    local rest = limit - c + h + credits.held(name)
    local passed = credits.passedOf(thresholds, limit, rest)
    -- What is spoken for may be held, too.
    if (passed[#passed] or 0) > told then rest = rest + spokenOf(name) end
    local highest = notePassed(name, thresholds, told, limit, rest, text(nowMs + left))
    if highest then redis.call('HSET', name, 'd', highest) end
  end
  -- The clock is cut to whole ms, so the last one may be over by now.
  return {status, turn, granted, spent, spoken, total or b + h, wait, lacking or 0, present, left - 1, 0, limit - b}
end

-- Does the same for places, of which `taken` are in use now. A place is free again once its holder gives it back or is no member
-- any more: a former member answers nothing, because its lease is over.
local function exchangePlaces(name, turn, taken, kept, needs, wanted, limit)
  if not isLive then return {'NOREG', turn, 0, 0, 0, 0, -1, 0} end
  local _, _, last = numbers(redis.call('HMGET', name, '@' .. member)[1])
  if turn <= last then return {'OLD', turn} end
  taken = taken or 0
  local free, others, held, holders = scanPlaces(name)
  local granted = taken + kept
  local function scan() return others, 0, others, holders end
  local status, b, h, all, spoken, total, _, lacking =
    grant(scan, name, limit - held - granted, free + kept, granted, kept, needs, wanted)
  redis.call('HSET', name, '@' .. member, field(all, taken, turn, spoken))
  -- EXPIRE is no right of a verifier there.
  redis.call('PEXPIRE', name, text(DAY * 1000))
  return {status, turn, all, taken, spoken, math.max(0, total or b + h), -1, lacking or 0, -1, -1, 0, limit - b}
end

-- Removes names that left long ago; otherwise the names would add up with every pod.
if isLive and redis.call('ZADD', held, text(now), member) == 1 then
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', held, '-inf', text(now - DAY), 'LIMIT', 0, 10)) do
    if live(name) then redis.call('ZADD', held, text(now), name)
    else redis.call('ZREM', held, name) end
  end
end
for i = 1, #turns / 10 do
  local turn, spent, holding, kept, needs, slice, limit, duration, number, index = unpack(turns, 10 * i - 9, 10 * i)
  turn, spent, kept, slice = tonumber(turn), tonumber(spent), tonumber(kept), tonumber(slice)
  if limit == '-' then
    local told = {}
    for number in string.gmatch(holding, '%S+') do told[#told + 1] = tonumber(number) end
    replies[i] = exchange(names[i], turn, spent, told, kept, needs, slice)
  elseif duration == '0' then replies[i] = exchangePlaces(names[i], turn, spent, kept, needs, slice, tonumber(limit))
  else
    replies[i] = exchangeWindow(
      names[i], turn, spent, tonumber(holding), kept, needs, slice, tonumber(limit), duration, tonumber(number), names[tonumber(index)])
  end
end
for _, pool in ipairs(recalled) do redis.pcall('PUBLISH', channel, pool) end
return replies
