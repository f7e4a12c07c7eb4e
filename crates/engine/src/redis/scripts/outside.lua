-- Which of the KEYS somebody outside has taken. ARGV: the mark of what is shown by the ledger itself.
local found = {}
for _, name in ipairs(KEYS) do
  local value = redis.pcall('GET', name)
  if value and value ~= ARGV[1] then
    found[#found + 1] = { name, string.format('%d', redis.call('PTTL', name)) }
  end
end
return found
