-- Numbers a new key and leaves its creation mark: its number and a hash over this and all earlier creations, which
-- SYNC compares.
--
-- head, creations: their names; kept: creations to keep; content: digest of everything that the key is created with
-- Returns the number
local function addCreation(head, creations, kept, content)
  local n, last = unpack(redis.call('HMGET', head, 'n', 'g'))
  local number = string.format('%.0f', (n or 0) + 1)
  local hash = string.sub(redis.sha1hex((last or '0-') .. '|' .. number .. '|' .. content), 1, 16)
  redis.call('XADD', creations, 'MAXLEN', '~', kept, number .. '-0', 'h', hash)
  redis.call('HSET', head, 'n', number, 'g', number .. '-' .. hash)
  return number
end
