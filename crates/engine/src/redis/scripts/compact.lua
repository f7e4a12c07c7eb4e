-- Puts a snapshot that was uploaded in the place of what it stands for. KEYS[3]: its list. ARGV: the position it stands
-- for, the bounds of time, its name, its parts, its bytes, its hash, and what the keys of snapshots begin with.
local head, damage = read_head()
if damage then
  return redis.error_reply(damage)
end
local at, upload = position(), KEYS[3]
if head then
  read_base(head)
end
local time = clock(head, tonumber(ARGV[4]), tonumber(ARGV[5]))
if head and head.snapshot ~= '' and at.epoch == head.epoch and at.revision <= head.base_revision then
  redis.call('UNLINK', upload)
  return told('older', time, head)
elseif not head or not has_place(head, at) then
  redis.call('UNLINK', upload)
  return told('foreign', time, head)
elseif redis.call('LLEN', upload) ~= tonumber(ARGV[7]) then
  return told('incomplete', time, head)
end

local volume = head.volume
if at.revision == head.base_revision then
  volume = head.base_volume
elseif at.revision < head.revision then
  local entry = redis.call('XRANGE', LOG, whole(at.revision) .. '-0', whole(at.revision) .. '-0')[1]
  volume = tonumber(string.match(entry[2][2], '%d+$'))
end
local older = head.snapshot
redis.call('PERSIST', upload)
redis.call('XTRIM', LOG, 'MINID', '=', whole(at.revision + 1) .. '-0')
redis.call('HSET', HEAD, 'base_revision', whole(at.revision), 'base_digest', at.digest, 'base_volume', whole(volume),
  'snapshot', ARGV[6], 'snapshot_parts', ARGV[7], 'snapshot_bytes', ARGV[8], 'snapshot_hash', ARGV[9])
if older ~= '' then
  redis.call('UNLINK', ARGV[10] .. older)
end
head.base_volume = volume
return told('compacted', time, head)
