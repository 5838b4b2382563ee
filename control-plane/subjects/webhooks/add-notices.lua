#!lua flags=allow-oom
-- Adds events that no call caused, or that are too many for the audit log, unless there are no endpoints. An event with
-- a mark is added once, however often this is called within a week.
--
-- endpoints, notices
-- most: maximum number of notices  marks: beginning of the marks' names  added: for each notice its mark, '' = none; and its JSON
-- Returns the number of notices from the first on that need not be sent again; fewer than were sent = there are too many
local WEEK_MS = 604800000
local isWanted, room = redis.call('HLEN', endpoints) > 0, most - redis.call('XLEN', notices)
for i = 1, #added, 2 do
  local mark = added[i]
  if isWanted and (mark == '' or redis.call('EXISTS', marks .. mark) == 0) then
    if room <= 0 then return (i - 1) / 2 end
    if mark ~= '' then redis.call('SET', marks .. mark, '1', 'PX', WEEK_MS) end
    redis.call('XADD', notices, '*', 'e', added[i + 1])
    room = room - 1
  end
end
return #added / 2
