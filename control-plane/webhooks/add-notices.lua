#!lua flags=allow-oom
-- Adds events that no call caused, or that are too many for the audit log, unless there are no endpoints. An event with
-- a mark is added once, however often this is called within a week.
--
-- KEYS 1 endpoints  2 notices
-- ARGV 1 maximum number of notices  2… for each notice: its mark, '' = none; and its JSON
-- Returns the number of notices from the first on that need not be sent again; fewer than were sent = there are too many
local WEEK_MS = 604800000
local endpoints, notices = KEYS[1], KEYS[2]
local isWanted, room = redis.call('HLEN', endpoints) > 0, tonumber(ARGV[1]) - redis.call('XLEN', notices)
local marks = string.gsub(notices, 'notices$', 'n:')
for i = 2, #ARGV, 2 do
  local mark = ARGV[i]
  if isWanted and (mark == '' or redis.call('EXISTS', marks .. mark) == 0) then
    if room <= 0 then return (i - 2) / 2 end
    if mark ~= '' then redis.call('SET', marks .. mark, '1', 'PX', WEEK_MS) end
    redis.call('XADD', notices, '*', 'e', ARGV[i + 1])
    room = room - 1
  end
end
return (#ARGV - 1) / 2
