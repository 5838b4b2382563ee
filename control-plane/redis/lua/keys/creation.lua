-- Numbers a new key and leaves its creation mark: its number and a hash over this and all earlier creations, which
-- SYNC compares. Keys that were created before there were marks count as one prefix with an empty hash.
--
-- head, creations: their names; kept: creations to keep; content: digest of everything that the key is created with
-- Returns the number
local function addCreation(head, creations, kept, content)
  local n, last = unpack(redis.call('HMGET', head, 'n', 'g'))
  local before = n or '0'
  local number = string.format('%.0f', before + 1)
  if not last then
    last = before .. '-'
    if before ~= '0' then redis.call('XADD', creations, before .. '-0', 'h', '') end
  end
  local hash = string.sub(redis.sha1hex(last .. '|' .. number .. '|' .. content), 1, 16)
  redis.call('XADD', creations, 'MAXLEN', '~', kept, number .. '-0', 'h', hash)
  redis.call('HSET', head, 'n', number, 'g', number .. '-' .. hash)
  return number
end
