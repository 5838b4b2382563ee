#!lua flags=allow-oom
-- Removes a deleted API whose records are gone and whose followers had two fences to notice. Its id is free again.
--
-- held: holders of credits; usage: of the whole API; tags: the names of the usage by tag, each without the day at the end
-- due, marks: what webhooks look at; declared: by managedBy; unused: keys that were disabled and are not in the audit log; days: those that may have usage
-- Returns 1 when the API is gone, 0 when it must stay
if not redis.call('HGET', head, 'deleted') or redis.call('ZCARD', index) > 0 then return 0 end
redis.call('DEL', head, log, members, creations, held, usage, due, marks, unused, declared)
for _, day in ipairs(days) do redis.call('DEL', tags .. day) end
return 1
