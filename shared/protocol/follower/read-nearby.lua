#!lua flags=no-writes
-- Reads a record at a replica, which may be late or have another history, for a follower at a position of the log. The record counts
-- only if the follower could have read it from the primary at that position: its changes and creations are a prefix of the
-- replica's, the record is one of these creations or of these changes, and no later change at the replica is about it.
--
-- position, hash, mark: as in SYNC
-- place, long, own, records, metas: as in SYNC; records and metas are always there
-- Returns {'SAME', nonce, record as recordAt returns it, pointer}
--         | {'ELSEWHERE', nonce, pointer or nil}: the secret belongs to no key of this API here
--         | {'OTHER', nonce}: this replica does not tell
-- include ../history/history.lua
-- include record.lua

local LATER_MAX = 100
local record, pointer = place, nil
if own then
  pointer = redis.call('GET', place)
  if not pointer or string.sub(pointer, 1, #own) ~= own then return {'ELSEWHERE', nonce, pointer} end
  local id = string.sub(pointer, #own + 1)
  record, long = records .. id, metas .. id
end
local s, h, g, deleted, refused = unpack(redis.call('HMGET', head, 's', 'h', 'g', 'deleted', 'X'))
if deleted or refused or differs(s or '0', h or '', g or '0-') then return {'OTHER', nonce} end
local found = recordAt(record, long)
if #found == 0 or tonumber(found[2]) > tonumber(string.match(mark, '^%d+')) then return {'OTHER', nonce} end
local pos = tonumber(position)
if pos < tonumber(s or 0) then
  local later = redis.call('XRANGE', log, string.format('%.0f-0', pos + 1), '+', 'COUNT', LATER_MAX)
  if #later == LATER_MAX then return {'OTHER', nonce} end
  local keyId = string.sub(record, #records + 1)
  for _, entry in ipairs(later) do
    if entry[2][4] == keyId then return {'OTHER', nonce} end
  end
end
return {'SAME', nonce, found, pointer}
