-- Reads a record; FIELDS and AT: the fields of a key, and the place of each (LUA_FIELDS).
--
-- record: its name; long: of its long meta
-- Returns {} if there is none | {secret hash, creation number, and the FIELDS}; the secret hash is followed by the name of the pool of
-- credits and the first key of the rotations, if the key has either
local function recordAt(record, long)
  local f = redis.call('HMGET', record, 'M', 'p', 'i', 'q', 'W', unpack(FIELDS))
  local apart, secretHash, number, pool, first = unpack(f, 1, 5)
  if not secretHash then return {} end
  local values = {unpack(f, 6)}
  if apart then values[AT.m] = redis.call('GET', long) end
  local named = (pool or first) and secretHash .. ' ' .. (pool or '') .. ' ' .. (first or '') or secretHash
  local found = {named, number or '0'}
  for i = 1, #FIELDS do found[i + 2] = values[i] or '' end
  return found
end
