-- Lets the sender pass over the events that are in the audit log now, without reading them. Returns false if the group of
-- the streams does not exist, or if the user has no right to XGROUP SETID.
local function passOver(log, group)
  local facts = {}
  local about = redis.pcall('XINFO', 'STREAM', log)
  for i = 1, #about, 2 do facts[about[i]] = about[i + 1] end
  local last, added = facts['last-generated-id'], facts['entries-added']
  return last ~= nil and not redis.pcall('XGROUP', 'SETID', log, group, last, 'ENTRIESREAD', added).err
end
