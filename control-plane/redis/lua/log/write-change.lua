#!lua flags=allow-oom
-- WRITE: changes a key or an API and appends the change to the API's log, atomically. The only way a change
-- reaches verifiers. No `no-writes` flag: a deposed primary refuses it (NOREPLICAS, READONLY) even when it
-- would write nothing. allow-oom: a key can be disabled on a Redis that is full.
--
-- KEYS 1 head  2 log  3 index  4 record  5 long meta  6 members      (4 and 5 repeat the head for `noop`, `api-deleted`)
-- ARGV 1 operation: update | delete | noop | api-deleted | create: a record that no key's pointer leads to, and of which
--        followers may remember that there is none; its fields have `p`, which its changes carry
--      2 keyId ('' for noop and api-deleted)   3 channel   4 now, Unix ms
--      5 log length to keep                    6 longest payload, bytes
--      7 condition: the record's version (update, delete) or the head's sequence (noop) must equal it, '' = any
--      8 owner-index prefix
--      9 protocol that followers need for it  10… field, value pairs to set; value '' clears. Of `q` the value is what becomes
--      of the credits, JSON: {id: unique, op: set | none | increment | decrement | refill, value, refill: '' = none, absent = as before,
--      operation: what names it where it is sent again, and then it was made}
-- Returns {'OK', sequence, hash, Lf, previous version, what each field held before, credits left ('' = nothing was done to
--         them), '1' = holders are to give some of them back first, id of this server}
--         | {'NOT_FOUND'} | {'CONFLICT'} | {'EXISTS'}: of `create` | {'TOO_OLD', number of followers that are too old, name of each of the first, …}
--         | {'REUSED'}: another change had this name | {'UNLIMITED'}: there are no credits that could be changed so
-- include gate.lua
-- include server.lua
-- include ../../../../shared/redis/credits.lua
-- include ../credits/sharing.lua
-- include ../credits/operations.lua
-- include ../credits/change-credits.lua
-- include change.lua

return change(KEYS, ARGV)
