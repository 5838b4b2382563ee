#!lua flags=allow-oom
-- Notes the API of a deleted key for a while.
--
-- note: of the key; value: id of the API; kept: ms
-- Returns 1
redis.call('SET', note, value, 'PX', kept)
return 1
