#!lua flags=allow-oom
-- Finds the places of the keys with some secrets. It is a script instead of MGET, because a deposed primary would answer
-- MGET.
--
-- Returns {the pointers' names, {their 'apiId keyId' or nil, …}}; the names pair the reply with its request, as a nonce does
local found = {}
for i, pointer in ipairs(pointers) do found[i] = redis.call('GET', pointer) end
return {table.concat(pointers, ' '), found}
