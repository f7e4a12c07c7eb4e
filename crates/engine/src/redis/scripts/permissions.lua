-- Which of these commands the user may not run. ARGV: each a command, its words parted by spaces. Nothing is run.
local denied = {}
if not redis.acl_check_cmd then
  return denied
end
for _, command in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(command, '%S+') do
    words[#words + 1] = word
  end
  if not redis.acl_check_cmd(unpack(words)) then
    denied[#denied + 1] = words[1] .. ' on ' .. (words[2] or 'anything')
  end
end
return denied
