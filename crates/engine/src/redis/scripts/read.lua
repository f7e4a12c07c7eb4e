-- ARGV: a position, the bounds of time, the bytes that may be handed back.
local head, damage = read_head()
if damage then
  return redis.error_reply(damage)
end
local lower, upper, budget = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local time = clock(head, lower, upper)
return missed(head, position(), time, budget)
