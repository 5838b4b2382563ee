-- Tells whether a control plane is the one that sends webhooks, and lets it stay the one for `ms` from now; 0 = no longer.
-- Each script of the sender begins with this, so one that was replaced writes nothing.
local function isSender(sender, name, ms)
  if redis.call('GET', sender) ~= name then return false end
  redis.call('PEXPIRE', sender, ms)
  return true
end
