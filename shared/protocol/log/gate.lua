-- The gate: raises the protocol that an API needs of its followers, the head's `P`, before a write that followers of an
-- older protocol would not obey. REGISTER and SYNC refuse older followers from then on.
--
-- head, members: their names; present: the head's `P`; needs: the protocol that the write needs
-- Returns nil | a reply for the caller if older followers are registered: nothing was written
local function gate(head, members, present, needs)
  if needs <= tonumber(present or 1) then return nil end
  local answer = {'TOO_OLD', needs, 0}
  for _, name in ipairs(redis.call('ZRANGE', members, 0, -1)) do
    if tonumber(string.match(name, '^%d+') or 1) < needs then
      answer[3] = answer[3] + 1
      if answer[3] <= 10 then answer[#answer + 1] = name end
    end
  end
  if answer[3] > 0 then return answer end
  redis.call('HSET', head, 'P', needs)
end
