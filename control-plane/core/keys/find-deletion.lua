#!lua flags=allow-oom
-- Finds the deletion of a key in a page of the log, the newest entry first. Not flagged `no-writes`, so that a deposed primary
-- refuses to answer.
--
-- from: id of the entry to begin with, '+' = the newest; limit: maximum number of entries
-- Returns {sequence of the deletion, '' = none here; where to continue, '' = there is no more to find}
local entries = redis.call('XREVRANGE', log, from, '-', 'COUNT', limit)
for _, entry in ipairs(entries) do
  -- fields: h, hash, k, keyId, d, payload
  if entry[2][4] == keyId then
    local payload = entry[2][6] == '' and {'forget'} or cjson.decode(entry[2][6])
    -- A no-op says that the key was gone. With a digest, it is a state too long for the log.
    if payload[1] == 'forget' and not payload[3] then return {string.match(entry[1], '^%d+'), ''} end
    return {'', ''}
  end
end
return {'', #entries == tonumber(limit) and '(' .. entries[#entries][1] or ''}
