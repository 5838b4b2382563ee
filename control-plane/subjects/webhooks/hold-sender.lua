#!lua flags=allow-oom
-- Makes a control plane the one that sends webhooks, or lets it stay the one.
--
-- name: of the control plane; ms: for which it is the sender, 0 = not any more
-- Returns 1 if it is the sender, 0 if another is
-- include sender.lua
if isSender(sender, name, ms) then return 1 end
if ms == '0' then return 0 end
return redis.call('SET', sender, name, 'NX', 'PX', ms) and 1 or 0
