-- Returns the length of the lease, in milliseconds. A verifier follows the shared log even before the log exists, if keys
-- have an identity's external id and no role or identity was ever created. create-api.lua makes fences wait as long as this
-- lease.
--
-- head: name of the head; L: the lease stored in it
local function leaseOf(head, L)
  return L or (string.find(head, '{!', 1, true) and '10000' or '0')
end
