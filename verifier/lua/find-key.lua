#!lua flags=allow-oom
-- Where the key with a secret lies. A script and not GET, because a deposed primary answers GET.
--
-- KEYS 1 pointer
-- Returns {the pointer's name, 'apiId keyId' or nil}; the name pairs the reply with its request, as a nonce does
return {KEYS[1], redis.call('GET', KEYS[1])}
