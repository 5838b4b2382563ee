#!lua flags=allow-oom
-- Where the keys with some secrets lie. A script and not MGET, because a deposed primary answers MGET.
--
-- KEYS 1 and all others: pointers
-- Returns {the pointers' names, {their 'apiId keyId' or nil, …}}; the names pair the reply with its request, as a nonce does
local found = {}
for i, pointer in ipairs(KEYS) do found[i] = redis.call('GET', pointer) end
return {table.concat(KEYS, ' '), found}
