#!lua flags=allow-oom
-- WRITE: changes a key or an API and appends the change to the API's log, atomically. Verifiers learn of a change in
-- no other way. No `no-writes` flag: a deposed primary refuses the script (NOREPLICAS, READONLY) even if it would
-- write nothing. allow-oom: a key can be disabled on a Redis that is full.
--
-- operation: update | delete | noop | api-deleted | create: a record to which no secret's pointer leads, and whose absence
--   followers may remember; its fields have `p`, which its changes carry
--   | delete-again: deletes, or where there is no record writes a no-op that names the key, so that all before it can be waited for
-- record, long: of the key, its long meta; for noop and api-deleted both are the head, and keyId is ''
-- now: Unix ms; maxlen: log length to keep; longest: payload, bytes; base: the beginning of the names of all data of the API
-- condition: the record's version or the sequence in it (update, delete), or the head's sequence (noop), must equal it, '' = any;
--   'of ' and a set: that must be the managedBy of the record or, of api-deleted, of the API
-- needs: protocol that followers need for the change
-- fields: field, value pairs to set; value '' clears. No entry has `B`. The value of `q` is a change of the credits, JSON: {id: unique,
--   op: set | none | increment | decrement | refill, value, refill, thresholds: '' = none, absent = unchanged, operation: name of the
--   change, by which a repeated call is recognised}
-- Returns {'OK', sequence, hash, Lf, previous version, credits left ('' = not changed), '1' = holders must first give some of
--         them back, id of this server, ms for which outsiders accept what they were lent after its end, '' = nobody was lent anything, then the name and the previous value of each field that was set; of a deleted key, of
--         every field}
--         | {'NOT_FOUND'} | {'CONFLICT', the record's version} | {'EXISTS'}: for `create`
--         | {'TOO_OLD', the protocol that it needs, number of followers that are too old, name of each of the first, …}
--         | {'NAME_TAKEN', the name that both a rate limit and a concurrency limit would have}
--         | {'REUSED'}: another change had this name | {'UNLIMITED'}: the key has no credits that could be changed this way
-- include require-writes.lua
-- include gate.lua
-- include server.lua
-- include ../../metering/plug.lua
-- include operations.lua
-- include change.lua

requireWrites(head)
return change(operation, keyId, record, long, condition, needs, fields)
