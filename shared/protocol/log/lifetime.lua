-- Returns a refusal if a key would live longer than its API allows.
--
-- longest: of the API's head, false = no rule; now: Unix ms; expires: of the key, Unix ms, false = never
local function tooLong(longest, now, expires)
  if longest and (not expires or tonumber(expires) > now + longest) then return {'TOO_LONG', longest} end
end
