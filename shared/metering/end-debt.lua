#!lua flags=allow-oom
-- Ends a decrement that took more credits than Redis had, once every live holder has given back what it can.
--
-- record: of the key; pools: beginning of the pools' names
-- Returns {'1' when no holder has credits that the pool lacks, else '0', credits left}; {} when there is no such pool
-- include credits.lua
local name = pools .. (redis.call('HGET', record, 'q') or '')
local b, h, r, t = unpack(redis.call('HMGET', name, 'b', 'h', 'r', 't'))
if not b then return {} end
local credits = creditsOf(members, held)
b, h = credits.refillIfDue(name, tonumber(b), tonumber(h or 0), r, t, '', 0)
redis.call('HSET', name, 'b', credits.text(b), 'h', credits.text(h))
local owed = redis.call('HMGET', name, 'o')[1]
if owed then credits.owe(name, tonumber(owed)) end
return {owed and select(2, credits.oldOf(name)) > 0 and '0' or '1', (credits.look(name))}
