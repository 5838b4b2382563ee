-- Functions about credits that the scripts of both processes include.
--
-- members, held: names of the sorted sets of an API's followers, and of the holders that have fields in its pools
-- Returns a table of functions
local function creditsOf(members, held)
  local time = redis.call('TIME')
  local now = tonumber(time[1])
  local nowMs = now * 1000 + math.floor(time[2] / 1000)
  local NEVER = 9e15
  local DAY = 86400
  -- A threshold is told again once a twentieth of the whole is there beyond it.
  local ROOM = 20

  local function text(number)
    return string.format('%.0f', number)
  end

  -- Formats a holder's field: granted, spent, turn, spoken for. A recall appends its time, which stays until the holder's
  -- next turn.
  local function field(granted, spent, turn, spoken)
    return string.format('%.0f %.0f %.0f %.0f', granted, spent, turn, spoken)
  end

  local function numbers(value)
    if not value then return 0, 0, 0, 0 end
    local granted, spent, turn, spoken, asked = string.match(value, '^(%S+) (%S+) (%S+) (%S+) ?(%S*)')
    return tonumber(granted), tonumber(spent), tonumber(turn), tonumber(spoken), tonumber(asked)
  end

  local function live(name)
    local score = redis.call('ZSCORE', members, name)
    return score and tonumber(score) >= 0
  end

  -- Days since 1970 of a date, and the year and month of a day (Hinnant, chrono-compatible low-level date algorithms).
  local function dayOf(year, month, day)
    if month <= 2 then year = year - 1 end
    local era = math.floor(year / 400)
    local ofEra = year - era * 400
    local ofYear = math.floor((153 * ((month + 9) % 12) + 2) / 5) + day - 1
    return era * 146097 + ofEra * 365 + math.floor(ofEra / 4) - math.floor(ofEra / 100) + ofYear - 719468
  end

  local function monthOf(day)
    local shifted = day + 719468
    local era = math.floor(shifted / 146097)
    local ofEra = shifted - era * 146097
    local year = math.floor((ofEra - math.floor(ofEra / 1460) + math.floor(ofEra / 36524) - math.floor(ofEra / 146096)) / 365)
    local ofYear = ofEra - (365 * year + math.floor(year / 4) - math.floor(year / 100))
    local month = (math.floor((5 * ofYear + 2) / 153) + 2) % 12 + 1
    return year + era * 400 + (month <= 2 and 1 or 0), month
  end

  -- Returns the end of the calendar period that `at` is in, and its beginning, Unix seconds.
  --
  -- calendar: h, d, w or m, for hours, days, weeks and months; then the day on which a week (1 = Monday) or a month begins, '' =
  --   the first; then '+' or '-' and the seconds after 00:00 UTC at which a period begins. A month without that day begins on its
  --   last day
  local function periodOf(calendar, at)
    local kind, day, shift = string.match(calendar, '^(%l)(%d*)([+-]?%d*)$')
    day, shift = tonumber(day) or 1, tonumber(shift) or 0
    local time = at - shift
    local length = ({h = 3600, d = DAY, w = 7 * DAY})[kind]
    if length then
      -- 1970 began on a Thursday.
      local first = kind == 'w' and (day - 4) * DAY or 0
      local start = math.floor((time - first) / length) * length + first + shift
      return start + length, start
    end
    local function beginning(year, month)
      local nextYear, nextMonth = year + math.floor(month / 12), month % 12 + 1
      return math.min(dayOf(year, month, day), dayOf(nextYear, nextMonth, 1) - 1) * DAY, nextYear, nextMonth
    end
    local year, month = monthOf(math.floor(time / DAY))
    local start, nextYear, nextMonth = beginning(year, month)
    if start > time then
      local before = beginning(year - (month == 1 and 1 or 0), (month + 10) % 12 + 1)
      return start + shift, before + shift
    end
    return beginning(nextYear, nextMonth) + shift, start + shift
  end

  -- Returns the amount of a refill, and the time of the next one after now.
  local function refillOf(refill)
    local kind, amount, rest = string.match(refill, '^(%l) (%d+) ?(%S*)')
    return tonumber(amount), (periodOf(kind .. rest, now))
  end

  -- Returns those per cents in `thresholds` that are used of `whole`, in their order
  local function passedOf(thresholds, whole, left)
    local passed = {}
    for percent in string.gmatch(thresholds, '%d+') do
      percent = tonumber(percent)
      if left < whole and (whole - left) * 100 >= percent * whole then passed[#passed + 1] = percent end
    end
    return passed
  end

  -- Sets of how many credits the thresholds of a pool are per cents. Those that are not passed any more are told of again.
  -- d: as in the pool, see exchange.lua  whole: nil = the greater of `left` and what it was
  local function measure(pool, d, whole, left)
    local before, told, thresholds = string.match(d, '^(%d+) (%d+) (.*)$')
    local isBegun = not whole
    whole = whole or math.max(tonumber(before), left)
    -- Whoever hovers around a threshold is not told again and again.
    local passed = passedOf(thresholds, whole, isBegun and left - whole / ROOM or left)
    told = math.min(tonumber(told), passed[#passed] or 0)
    redis.call('HSET', pool, 'd', text(whole) .. ' ' .. told .. ' ' .. thresholds)
  end

  -- Notes what work of a holder holds now, and before.
  local function hold(pool, name, before, now)
    if now == before then return end
    if now > 0 then redis.call('HSET', pool, '~' .. name, text(now)) else redis.call('HDEL', pool, '~' .. name) end
    redis.call('HSET', pool, 'e', text((redis.call('HMGET', pool, 'e')[1] or 0) + now - before))
  end

  -- Returns what work of all holders holds, without what is owed of it
  local function heldOf(pool)
    local held, owed = unpack(redis.call('HMGET', pool, 'e', 'o'))
    return tonumber(held or 0) - tonumber(owed or 0)
  end

  -- Returns what holders may still give back of what they had before the latest decrement, and the part of it that live ones
  -- can spend
  local function oldOf(pool)
    local all, out = 0, 0
    local fields = redis.call('HGETALL', pool)
    for i = 1, #fields, 2 do
      local name = string.match(fields[i], '^!(.*)$')
      if name then
        local old = tonumber(string.match(fields[i + 1], '^%d+'))
        all = all + old
        if live(name) then out = out + math.max(0, old - tonumber(redis.call('HMGET', pool, '~' .. name)[1] or 0)) end
      end
    end
    return all, out
  end

  -- Returns the part of what is owed that what work holds and what live holders can spend will pay, without what is spoken for
  local function payable(pool, owed)
    local sum = 0
    local fields = redis.call('HGETALL', pool)
    for i = 1, #fields, 2 do
      local name = string.match(fields[i], '^!(.*)$')
      if name then
        local mine, held = unpack(redis.call('HMGET', pool, '@' .. name, '~' .. name))
        local granted, spent, _, spoken = numbers(mine)
        local there = (live(name) and granted - spent - spoken or 0) + tonumber(held or 0)
        sum = sum + math.min(there, tonumber(string.match(fields[i + 1], '^%d+')))
      end
    end
    return math.min(owed, sum)
  end

  -- Forgives what nobody can pay any more: it was spent, or lost.
  local function owe(pool, owed)
    owed = math.min(owed, (oldOf(pool)))
    if owed > 0 then redis.call('HSET', pool, 'o', text(owed)) else redis.call('HDEL', pool, 'o') end
  end

  -- Pays what a decrement did not find with what came back from before it. What a holder got later pays nothing, but its totals
  -- do not tell the two apart. So one of its turns divides them: the first one at which it has applied the decrement and keeps
  -- nothing to spend. Then only what its work holds is from before; from then on the holder counts that by itself.
  --
  --                 a decrement        it has applied it, and keeps nothing: the divide
  --   ───────────────────┼──────────────────────────────┼─────────────────────────▶ turns of one holder
  --   work A   ├───────────────── holds 3 ──────────────┼────┤ comes back from before, and pays
  --   work B             │                              │  ├── holds 2 ──┤ comes back from after, and pays nothing
  --
  -- owed: before; name: the holder; turn; back: what came back, 0 or less = nothing; kept: what it can spend yet
  -- told: what its work holds and its position in the log, then if it knows of a divide what work from before holds yet, the
  -- divide, and what came back of that work since
  -- Returns what is paid, and whether this turn is the divide
  local function pay(pool, owed, name, turn, back, kept, told)
    local field = redis.call('HMGET', pool, '!' .. name)[1]
    local old, sequence, divide, came = string.match(field or '0', '^(%d+) ?(%d*) ?(%d*) ?(%d*)')
    local holding, position, yet, known, since = unpack(told)
    old = tonumber(old)
    local left, isDivide = holding + kept, false
    if divide ~= '' and tonumber(divide) == known then left, back, came = yet, math.min(back, since - came), text(since)
    elseif kept == 0 and position >= (tonumber(sequence) or 0) then divide, came, isDivide = text(turn), '0', old > 0 end
    left = math.min(old, left)
    local paid = math.max(0, math.min(owed, back, old - left))
    if left > 0 then redis.call('HSET', pool, '!' .. name, table.concat({text(left), sequence, divide, came}, ' '))
    else redis.call('HDEL', pool, '!' .. name) end
    owe(pool, owed - paid)
    return paid, isDivide
  end

  -- Goes through a pool's holders. The credits of holders that are not live no longer count as spendable; with `ended` they
  -- cannot be given back any more either. Removes the fields of holders whose names are forgotten.
  -- Returns what live holders can spend, the amount by which to lower h, all that live holders hold, and for each of them
  -- {its field, and the numbers in it}
  local function scan(pool, own, ended)
    local others, gone, lost, out, holders = 0, 0, 0, 0, {}
    local fields = redis.call('HGETALL', pool)
    for i = 1, #fields, 2 do
      local name = string.match(fields[i], '^@(.*)$')
      if name and name ~= own then
        local granted, spent, turn, spoken, asked = numbers(fields[i + 1])
        if live(name) then
          others, out = others + granted - spent - spoken, out + granted - spent
          if granted > spent then holders[#holders + 1] = {fields[i], granted, spent, turn, spoken, asked} end
        elseif not redis.call('ZSCORE', held, name) then
          lost, gone = lost + granted - spent, gone + granted - spent - spoken
          redis.call('HDEL', pool, fields[i], '!' .. name)
          hold(pool, name, tonumber(redis.call('HMGET', pool, '~' .. name)[1] or 0), 0)
        elseif ended and turn < NEVER then
          lost, gone = lost + granted - spent, gone + granted - spent - spoken
          redis.call('HSET', pool, fields[i], field(granted, granted, NEVER, 0))
          redis.call('HDEL', pool, '!' .. name)
          hold(pool, name, tonumber(redis.call('HMGET', pool, '~' .. name)[1] or 0), 0)
        elseif granted - spent > spoken then
          gone = gone + granted - spent - spoken
          redis.call('HSET', pool, fields[i], field(granted, spent, turn, granted - spent))
        end
      end
    end
    if lost > 0 then redis.call('HSET', pool, 'l', text((redis.call('HMGET', pool, 'l')[1] or 0) + lost)) end
    return others, gone, out, holders
  end

  -- Brings a pool up to date before any other operation: makes the due refill, only once however many were missed. The
  -- refill raises the pool to its amount and never lowers it. `kept` is what the caller, `own`, can spend.
  -- Returns the new b and h, and the time of the next refill; nil = none
  local function refillIfDue(pool, b, h, r, t, own, kept)
    if not r then return b, h end
    local amount, following = refillOf(r)
    if now < tonumber(t) then return b, h, tonumber(t) end
    local others, gone = scan(pool, own, true)
    redis.call('HSET', pool, 't', text(following), 'f', text(nowMs))
    local owed, d, held = unpack(redis.call('HMGET', pool, 'o', 'd', 'e'))
    if owed then owe(pool, tonumber(owed)) end
    -- What work holds may come back: it is part of what is left. What is spoken for counts as spent, and pays nothing.
    local out = kept + others + tonumber(held or 0) - (owed and payable(pool, tonumber(owed)) or 0)
    local left = math.max(amount, b + out)
    if d then measure(pool, d, left, left) end
    return left - out, h - gone, following
  end

  -- Takes credits off, as many as there are. The rest is owed by those who have credits that may come back.
  -- sequence: of the change
  -- Returns the new b, and whether a live holder can give some back
  local function take(pool, b, amount, sequence)
    if amount <= b then return b - amount, false end
    local fields = redis.call('HGETALL', pool)
    for i = 1, #fields, 2 do
      local name = string.match(fields[i], '^@(.*)$')
      if name then
        local granted, spent = numbers(fields[i + 1])
        local old = granted - spent + tonumber(redis.call('HMGET', pool, '~' .. name)[1] or 0)
        if old > 0 then redis.call('HSET', pool, '!' .. name, text(old) .. ' ' .. text(sequence)) end
      end
    end
    local all, out = oldOf(pool)
    local owed = math.min(all, tonumber(redis.call('HMGET', pool, 'o')[1] or 0) + amount - math.max(0, b))
    if owed > 0 then redis.call('HSET', pool, 'o', text(owed)) end
    return math.min(b, 0), owed > 0 and out > 0
  end

  -- Returns what is owed of what can be spent now: what work holds pays first.
  local function owedOf(pool)
    local held, owed = unpack(redis.call('HMGET', pool, 'e', 'o'))
    return owed and math.max(0, payable(pool, tonumber(owed)) - tonumber(held or 0)) or 0
  end

  -- Reads a pool without changing it.
  -- Returns credits left, r, f, what live holders hold, what was lost with other holders, and the thresholds; all as texts, '' = none
  local function look(pool)
    local b, r, t, f, l, d = unpack(redis.call('HMGET', pool, 'b', 'r', 't', 'f', 'l', 'd'))
    if not b then return '', '', '', '', '', '' end
    local left, out, lost = tonumber(b) - owedOf(pool), 0, tonumber(l or 0)
    local fields = redis.call('HGETALL', pool)
    for i = 1, #fields, 2 do
      local name = string.match(fields[i], '^@(.*)$')
      if name then
        local granted, spent, _, spoken = numbers(fields[i + 1])
        if live(name) then left, out = left + granted - spent - spoken, out + granted - spent
        else lost = lost + granted - spent end
      end
    end
    if r and now >= tonumber(t) then left, f = math.max(left, (refillOf(r))), text(nowMs) end
    return text(math.max(0, left)), r or '', f or '', text(out), text(lost), string.match(d or '', '^%d+ %d+ (.*)$') or ''
  end

  return {
    hold = hold, held = heldOf, owe = owe, pay = pay, take = take, oldOf = oldOf, owed = owedOf, look = look, measure = measure, passedOf = passedOf, now = now, nowMs = nowMs, text = text, field = field, numbers = numbers, live = live, scan = scan, refillIfDue = refillIfDue, refillOf = refillOf,
    periodOf = periodOf,
  }
end
