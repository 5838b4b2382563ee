-- Ends the script before its first write if its user lacks a right without which a change would be half done. Redis undoes
-- nothing of a script that stops half-way, so the log would be torn, and refuse every later change.
--
-- key: any key of the API
local function requireWrites(key)
  local check = redis.acl_check_cmd
  if not (check('HSET', key, 'f', 'v') and check('XADD', key, '*', 'f', 'v') and check('ZADD', key, '0', 'm')) then
    error({err = 'NOPERM this user has no permission to run HSET, XADD and ZADD'})
  end
end
