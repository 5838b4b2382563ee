-- The gate: raises the protocol that an API needs of its followers, before a write that followers of an older
-- protocol would not obey. An older follower that registers later brings its own scripts. So the head's `s` becomes
-- more than a number (`2:15` instead of `15`), at which every script of a release without the gate fails: its
-- verifiers can neither register nor synchronise, and its control planes can write nothing.
--
-- head, members: their names; s: the head's `s`; needs: the protocol that the write needs
-- Returns the prefix of the head's `s` from now on
--         | nil and a reply for the caller if older followers are registered: nothing was written
local function gate(head, members, s, needs)
  local prefix = string.match(s or '', '^%d+:') or ''
  if needs <= (tonumber(string.match(prefix, '%d+')) or 1) then return prefix end
  local answer = {'TOO_OLD', 0}
  for _, name in ipairs(redis.call('ZRANGE', members, 0, -1)) do
    if (tonumber(string.match(name, '^(%d%d?%d?)%.')) or 1) < needs then
      answer[2] = answer[2] + 1
      if answer[2] <= 10 then answer[#answer + 1] = name end
    end
  end
  if answer[2] > 0 then return nil, answer end
  prefix = needs .. ':'
  redis.call('HSET', head, 's', prefix .. string.match(s or '0', '%d+$'))
  return prefix
end
