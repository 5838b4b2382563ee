#!lua flags=allow-oom
-- Passes over the events of the audit log while there is no endpoint.
--
-- log: the audit log; name, ms: of the sender, and for which it is the sender; group: of the streams
-- Returns 1 = there is nothing to read | 0 = there may be | -1 = another is the sender
-- include sender.lua
-- include pass-over.lua
if not isSender(sender, name, ms) then return -1 end
if redis.call('EXISTS', endpoints) == 1 or redis.call('XLEN', notices) > 0 then return 0 end
return passOver(log, group) and 1 or 0
