#!lua flags=allow-oom
-- Where the key with a secret lies. A script and not GET, because a deposed primary answers GET.
--
-- KEYS 1 pointer
-- Returns 'apiId keyId' or nil
return redis.call('GET', KEYS[1])
