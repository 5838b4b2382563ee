-- The lease that is granted, milliseconds. The shared log is followed before anybody made it, where keys have an
-- owner and there never was a role or an identity; create-api.lua has fences wait as long as this.
--
-- head: its name; L: what it says
local function leaseOf(head, L)
  return L or (string.find(head, '{!', 1, true) and '10000' or '0')
end
