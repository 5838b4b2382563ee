#!lua flags=allow-oom
-- Passes over the events of the audit log while there is no endpoint.
--
-- KEYS 1 sender  2 audit log  3 notices  4 endpoints
-- ARGV 1 name of the sender  2 ms for which it is the sender  3 group of the streams
-- Returns 1 = there is nothing to read | 0 = there may be | -1 = another is the sender
-- include sender.lua
-- include pass-over.lua
local sender, log, notices, endpoints = unpack(KEYS)
if not isSender(sender, ARGV[1], ARGV[2]) then return -1 end
if redis.call('EXISTS', endpoints) == 1 or redis.call('XLEN', notices) > 0 then return 0 end
return passOver(log, ARGV[3]) and 1 or 0
