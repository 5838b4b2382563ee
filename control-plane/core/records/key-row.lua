-- Returns {keyId, meta, value of each letter, and what `look` of credits.lua returns for the key's pool}, '' = none.
local credits
local function rowOf(base, keyId, letters)
  local f = redis.call('HMGET', base .. 'k:' .. keyId, 'M', 'm', unpack(letters))
  if f[1] then f[2] = redis.call('GET', base .. 'm:' .. keyId) end
  local key = {keyId}
  for n = 2, #f do key[n] = f[n] or '' end
  local pool = redis.call('HGET', base .. 'k:' .. keyId, 'q')
  if pool then
    credits = credits or creditsOf(base .. 'members', base .. 'held')
    for _, value in ipairs({credits.look(base .. 'q:' .. pool)}) do key[#key + 1] = value end
  end
  return key
end
