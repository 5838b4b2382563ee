#!lua flags=allow-oom
-- Deletes a pointer if it still holds this value, so that it never deletes another key's pointer.
--
-- Returns how many were deleted
if redis.call('GET', pointer) ~= value then return 0 end
return redis.call('DEL', pointer)
