#!lua flags=allow-oom
-- Makes a control plane the one that sends webhooks, or lets it stay the one.
--
-- KEYS 1 sender
-- ARGV 1 name of the control plane  2 ms for which it is the sender, 0 = not any more
-- Returns 1 if it is the sender, 0 if another is
-- include sender.lua
if isSender(KEYS[1], ARGV[1], ARGV[2]) then return 1 end
if ARGV[2] == '0' then return 0 end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
