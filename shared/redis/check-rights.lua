#!lua flags=no-writes
-- RIGHTS: finds which of some commands the user of this connection may not run. Runs none of them.
--
-- ARGV commands with their arguments, words separated by spaces
-- Returns those commands that are forbidden or unknown
local denied = {}
for _, text in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(text, '%S+') do words[#words + 1] = word end
  local known, permitted = pcall(redis.acl_check_cmd, unpack(words))
  if not (known and permitted) then denied[#denied + 1] = text end
end
return denied
