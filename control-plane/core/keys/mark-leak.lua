#!lua
-- Notes in the record of a key that its secret was found in public.
--
-- leak: JSON {at: Unix ms, url}
-- Returns OK, also if there is no such key
if redis.call('HEXISTS', record, 'p') == 1 then redis.call('HSET', record, 'K', leak) end
return 'OK'
