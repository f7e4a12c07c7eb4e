-- ARGV: the position that is expected, the bounds of time, the bytes that may be handed back, then the batch.
-- KEYS from the third on are names outside of the ledger that others see and may take; for each of them one of the last
-- ARGV: for how many more milliseconds it is taken ('0': no longer).
local head, damage = read_head()
if damage then
  return redis.error_reply(damage)
end
local at = position()
local lower, upper, budget = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local batch, payload, hash = ARGV[7], ARGV[8], ARGV[9]
local log_bytes_max, epoch, channel, note_bytes_max = tonumber(ARGV[12]), ARGV[13], ARGV[14], tonumber(ARGV[15])
local time, wall = clock(head, lower, upper)

local is_end
if head then
  is_end = at.epoch == head.epoch and at.revision == head.revision and at.digest == head.digest
else
  is_end = is_origin(at)
end
if not is_end then
  return missed(head, at, time, budget)
end

local is_new = not head
if is_new then
  head = { epoch = epoch, revision = 0, digest = ZERO, time = 0, volume = 0, base_volume = 0 }
end
local volume = head.volume + #payload
if volume - head.base_volume > log_bytes_max then
  return told('full', time, head)
end

-- As soon as one who writes shares names with others, all have to.
local shares = ARGV[16] == '1'
if head.shares and not shares then
  return redis.error_reply('SHARED names are shown to others')
end

-- What others have is not overwritten, and keeps from recording what would need it.
local mark, theirs, outside = MARK .. HEAD, {}, {}
for place = 3, #KEYS do
  local value = redis.pcall('GET', KEYS[place])
  theirs[place] = value and value ~= mark
  if theirs[place] and ARGV[14 + place] ~= '0' then
    outside[#outside + 1] = { KEYS[place], whole(redis.call('PTTL', KEYS[place])) }
  end
end
if #outside > 0 then
  local answer = told('taken', time, head)
  answer[4] = outside
  return answer
end

-- What the writer proposes is taken when it lies between the last stamp and now.
local stamp, stamp_wall
local proposed = tonumber(ARGV[10])
if proposed >= head.time and proposed <= time then
  -- The writer's wall clock, unless it is wrong.
  local then_wall = wall - (time - proposed)
  local is_right = math.abs(tonumber(ARGV[11]) - then_wall) < 1000000
  stamp, stamp_wall = ARGV[10], is_right and ARGV[11] or whole(then_wall)
else
  stamp, stamp_wall = whole(time), whole(wall)
end
local header = table.concat({ head.digest, batch, stamp, stamp_wall, whole(volume) }, ' ')
local chained = table.concat({ head.epoch, head.digest, batch, stamp, stamp_wall, hash }, ' ')
local digest = string.sub(redis.sha1hex(chained), 1, 16)
head.revision, head.digest, head.volume = head.revision + 1, digest, volume
local revision = whole(head.revision)

-- First, because it is the one that a user's permissions may not allow: what fails here has changed nothing.
local note = head.epoch .. ' ' .. revision .. ' ' .. digest
if #payload <= note_bytes_max then
  note = note .. ' ' .. header .. '\n' .. payload
end
local listening = redis.call('SPUBLISH', channel, note)
redis.call('XADD', LOG, revision .. '-0', 'h', header, 'p', payload)
redis.call('HSET', HEAD, 'revision', revision, 'digest', digest, 'time', stamp, 'offset', whole(time - wall),
  'volume', whole(volume))
if is_new then
  redis.call('HSET', HEAD, 'format', FORMAT, 'epoch', epoch, 'base_revision', '0', 'base_digest', ZERO,
    'base_volume', '0', 'snapshot', '', 'snapshot_parts', '0', 'snapshot_bytes', '0', 'snapshot_hash', '')
end
if shares and not head.shares then
  redis.call('HSET', HEAD, 'shares', '1')
end
for place = 3, #KEYS do
  local left = ARGV[14 + place]
  if not theirs[place] and left ~= '0' then
    redis.call('SET', KEYS[place], mark, 'PX', left)
  elseif not theirs[place] then
    redis.call('DEL', KEYS[place])
  end
end
local answer = told('appended', time, head)
answer[4] = { stamp, stamp_wall }
answer[5] = listening
return answer
