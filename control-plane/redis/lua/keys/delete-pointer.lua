#!lua flags=allow-oom
-- Deletes a pointer if it still holds this value, so that it never deletes another key's pointer.
--
-- KEYS 1 pointer
-- ARGV 1 value
-- Returns how many were deleted
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
