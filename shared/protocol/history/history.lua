-- Tells whether the changes and the creations that a follower has seen are a prefix of this history. The script has the names of the log
-- and the creations, and the follower's position, hash and mark.
--
-- s, h: the last change of this history; last: the mark of its last creation
-- Returns nil if they are | 'DIVERGED' | 'TRIMMED': this history no longer has what would tell
local function differs(s, h, last)
  if mark ~= last then
    local number, seen = string.match(mark, '^(%d+)%-(%x*)$')
    if tonumber(number) > tonumber(string.match(last, '^%d+')) then return 'DIVERGED' end
    if number ~= '0' then
      local creation = redis.call('XRANGE', creations, number .. '-0', number .. '-0')[1]
      if not creation then return 'TRIMMED' end
      if creation[2][2] ~= seen then return 'DIVERGED' end
    end
  end
  local pos = tonumber(position)
  if pos == tonumber(s) and hash == h then return nil end
  if pos >= tonumber(s) then return 'DIVERGED' end
  if pos == 0 then
    local first = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
    if not first or first[1] ~= '1-0' then return 'TRIMMED' end
  else
    local entry = redis.call('XRANGE', log, position .. '-0', position .. '-0')[1]
    if not entry then return 'TRIMMED' end
    if entry[2][2] ~= hash then return 'DIVERGED' end
  end
end
