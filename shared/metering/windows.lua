-- Rate limits: an amount in each window of some length, aligned to the clock of Redis, or in each period of a calendar. A grant
-- counts in the window in which it was made, and must not be used after it. Anything not given back by then is lost.
--
-- A limit's hash: n number of the window, for a period its end in Unix seconds; c granted in it, p in the previous one; h the sum of what holders can spend;
--   d the highest threshold that was told of; e the sum of what work holds and may give back;
--   and for each holder '@' and its name → the same numbers as in a pool, all for this window; '~' and its name → the part of spent
--   that work holds, absent = 0
-- The limits that questions define for one key are in an index, a sorted set: name → when its hash expires, Unix ms
-- Returns a table of functions
local function windowsOf(member, nowMs, text, numbers, live, periodOf, hold)
  local own = '@' .. member
  local BROUGHT_MAX = 100

  -- Bounds the number of limits that questions define, because any caller may define any limit.
  local function admits(index, name)
    redis.call('ZREMRANGEBYSCORE', index, '-inf', text(nowMs))
    return redis.call('ZSCORE', index, name) or redis.call('ZCARD', index) < BROUGHT_MAX
  end

  -- Brings a limit to the current window. If the clock goes back by less than a window, the earlier window is not reopened.
  -- `duration`: of the windows in ms, or their calendar
  -- Returns whether the window is new, its number, c, p, h, the field of `member` and what work of it holds, ms until the window
  -- ends, and the ms for which its uses count in the next one: none of a period do
  local function open(name, duration)
    local n, c, p, h, mine, holds = unpack(redis.call('HMGET', name, 'n', 'c', 'p', 'h', own, '~' .. member))
    n, c, p, h = tonumber(n or -9), tonumber(c or 0), tonumber(p or 0), tonumber(h or 0)
    local slides, number, following, ends = tonumber(duration) or 0, nil, nil, nil
    if slides > 0 then
      number = math.floor(nowMs / slides)
      following = number + 1
    else
      number = periodOf(duration, math.floor(nowMs / 1000))
      following = periodOf(duration, number)
    end
    if n == following then number = n end
    ends = slides > 0 and (number + 1) * slides or number * 1000
    local isNew = n ~= number
    if isNew then
      p, c, h, mine, holds = slides > 0 and n == number - 1 and c or 0, 0, 0, nil, nil
      redis.call('DEL', name)
    end
    return isNew, number, c, p, h, mine, tonumber(holds or 0), ends - nowMs, slides
  end

  -- Returns what is left in a sliding window. The part of the previous window that is less than one duration ago counts, as
  -- if it had been spent evenly. A fraction of a use does not count: nothing is refused because of rounding.
  local function free(limit, slides, c, p, left)
    return limit - c - (p > 0 and math.floor(p * math.min(1, left / slides)) or 0)
  end

  -- Returns the ms until `least` fits if nobody takes anything before.
  local function wait(limit, slides, c, p, left, least)
    local room = limit - c - least
    if room >= 0 then return math.ceil(left - slides * (room + 1) / p) + 1 end
    if least > limit then return left + slides end
    return math.ceil(left + slides * math.max(0, 1 - (limit - least + 1) / c)) + 1
  end

  -- Goes through the holders like the function in credits.lua, but removes the fields of each holder that is not live,
  -- because its grant in this window cannot be taken back, and what its work holds is spent.
  local function scan(name)
    local others, gone, out, holders = 0, 0, 0, {}
    local fields = redis.call('HGETALL', name)
    for i = 1, #fields, 2 do
      local kind, holder = string.match(fields[i], '^([@~])(.*)$')
      if kind == '~' then
        if not live(holder) then hold(name, holder, tonumber(fields[i + 1]), 0) end
      elseif holder and fields[i] ~= own then
        local granted, spent, turn, spoken, asked = numbers(fields[i + 1])
        if not live(holder) then
          gone = gone + granted - spent - spoken
          redis.call('HDEL', name, fields[i])
        else
          others, out = others + granted - spent - spoken, out + granted - spent
          if granted > spent then holders[#holders + 1] = {fields[i], granted, spent, turn, spoken, asked} end
        end
      end
    end
    return others, gone, out, holders
  end

  local function close(isNew, name, number, c, p, h, left, slides, mine, index)
    if not isNew then return redis.call('HSET', name, 'c', text(c), 'h', text(h), own, mine) end
    redis.call('HSET', name, 'n', text(number), 'c', text(c), 'p', text(p), 'h', text(h), own, mine)
    redis.call('PEXPIRE', name, text(left + slides))
    if not index then return end
    redis.call('ZADD', index, text(nowMs + left + slides), name)
    redis.call('PEXPIRE', index, text(left + slides), 'NX')
    redis.call('PEXPIRE', index, text(left + slides), 'GT')
  end

  return {admits = admits, open = open, free = free, wait = wait, scan = scan, close = close}
end
