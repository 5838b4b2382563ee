#!lua flags=allow-oom
-- WRITE for several keys of an API: makes the same change to each, one after the other, with nothing in between.
--
-- records: the record and the long meta of each key; count: of keys; rest: the id and the condition of each key, then the
-- fields; all others: see write-change.lua
-- Returns what write-change.lua returns, for each key
-- include require-writes.lua
-- include gate.lua
-- include server.lua
-- include ../../metering/plug.lua
-- include operations.lua
-- include change.lua

requireWrites(head)
local fields = {unpack(rest, 2 * count + 1)}
local replies = {}
for i = 1, count do
  local record, long = unpack(records, 2 * i - 1, 2 * i)
  local keyId, condition = unpack(rest, 2 * i - 1, 2 * i)
  replies[i] = change(operation, keyId, record, long, condition, needs, fields)
end
return replies
