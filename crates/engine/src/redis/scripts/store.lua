-- Adds one part to a snapshot that is being uploaded. KEYS[1]: its list. ARGV: which part this is, its bytes, and the
-- seconds after which an upload that nobody goes on with is removed.
if redis.call('LLEN', KEYS[1]) ~= tonumber(ARGV[1]) then
  return redis.error_reply('DAMAGED a part of the snapshot is not where it was put')
end
redis.call('RPUSH', KEYS[1], ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 'stored'
