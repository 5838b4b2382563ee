#!lua flags=no-writes
-- Finds the place of the key with a secret at a replica.
--
-- Returns {the pointer's name, its 'apiId keyId' or nil}; the name pairs the reply with its request, as a nonce does
return {pointer, redis.call('GET', pointer)}
