-- What every script of a ledger begins with. Nothing here knows what a lock is.
--
-- KEYS[1] is the head, a hash; KEYS[2] the log, a stream with one entry for each batch behind the snapshot.
-- A position is an epoch and a digest of 16 hexadecimal digits each, and a revision.
-- Times are microseconds: whole numbers below 2^53, which Lua keeps exactly.
local HEAD, LOG = KEYS[1], KEYS[2]
local FORMAT = '1'
-- The value of names outside of the ledger that it shows as taken; the key of the head follows.
local MARK = 'lockkeeper '
local ZERO = '0000000000000000'
-- What a record costs besides its payload.
local RECORD_BYTES = 160

local function whole(number)
  return string.format('%d', number)
end

-- The head; nil when there is no ledger; and what is wrong, if anything is.
local function read_head()
  local field = redis.call('HMGET', HEAD, 'format', 'epoch', 'revision', 'digest', 'time', 'offset', 'volume',
    'base_revision', 'base_volume', 'shares')
  local kept = redis.call('XLEN', LOG)
  if not field[1] then
    if kept > 0 then
      return nil, 'DAMAGED there are ' .. kept .. ' records and no head'
    end
    return nil
  end
  if field[1] ~= FORMAT then
    return nil, 'DAMAGED it has the format ' .. field[1] .. ', and only ' .. FORMAT .. ' is known here'
  end
  local head = {
    epoch = field[2], revision = tonumber(field[3]), digest = field[4], time = tonumber(field[5]),
    offset = tonumber(field[6]), volume = tonumber(field[7]), base_revision = tonumber(field[8]),
    base_volume = tonumber(field[9]), shares = field[10] == '1',
  }
  if not (head.epoch and head.revision and head.digest and head.time and head.offset and head.volume
    and head.base_revision and head.base_volume) then
    return nil, 'DAMAGED its head is not whole'
  end
  if kept ~= head.revision - head.base_revision then
    return nil, 'DAMAGED ' .. whole(head.revision - head.base_revision) .. ' records should be there, and '
      .. kept .. ' are'
  end
  return head
end

-- Where the kept records begin, and which snapshot stands for what came before: its name, or nothing.
local function read_base(head)
  local field = redis.call('HMGET', HEAD, 'base_digest', 'snapshot', 'snapshot_parts', 'snapshot_bytes',
    'snapshot_hash')
  head.base_digest, head.snapshot = field[1] or '', field[2] or ''
  head.parts, head.bytes, head.hash = field[3] or '', field[4] or '', field[5] or ''
end

-- The time of the ledger and the wall clock of this server. As long as somebody remembers how late it was, a wall
-- clock that is set moves nothing: the ledger's time stays within what they remember.
local function clock(head, lower, upper)
  local parts = redis.call('TIME')
  local wall = tonumber(parts[1]) * 1000000 + tonumber(parts[2])
  local time = wall + (head and head.offset or 0)
  if upper > 0 and time > upper then
    time = upper
  end
  return math.max(time, lower, head and head.time or 0), wall
end

-- The records from this revision on: as many as there is room for, and at least one.
local function page(head, from, budget)
  local records, size = {}, 0
  if budget == 0 or from > head.revision then
    return records
  end
  local function take(first, count)
    local entries = redis.call('XRANGE', LOG, whole(first) .. '-0', '+', 'COUNT', whole(count))
    for _, entry in ipairs(entries) do
      local fields = entry[2]
      records[#records + 1] = { entry[1], fields[2], fields[4] }
      size = size + RECORD_BYTES + #fields[4]
    end
    return #entries
  end
  if take(from, 1) == 0 then
    return records
  end
  local volume = tonumber(string.match(records[1][2], '%d+$'))
  local rest = head.volume - volume + (head.revision - from) * RECORD_BYTES
  -- A few at a time if not all fit: how large they are is known only when they are there.
  local count = (size + rest <= budget) and head.revision or 4
  while size < budget and from + #records <= head.revision do
    if take(from + #records, count) == 0 then
      break
    end
  end
  return records
end

-- The digest right before a record that is kept.
local function digest_before(revision)
  local entry = redis.call('XRANGE', LOG, whole(revision) .. '-0', whole(revision) .. '-0')[1]
  return entry and string.sub(entry[2][2], 1, 16)
end

-- Whether the ledger has passed this place, and still knows.
local function has_place(head, at)
  if at.epoch ~= head.epoch or at.revision < head.base_revision or at.revision > head.revision then
    return false
  elseif at.revision == head.revision then
    return at.digest == head.digest
  elseif at.revision == head.base_revision then
    return at.digest == head.base_digest
  end
  return at.digest == digest_before(at.revision + 1)
end

local function is_origin(at)
  return at.epoch == ZERO and at.revision == 0 and at.digest == ZERO
end

local function position()
  return { epoch = ARGV[1], revision = tonumber(ARGV[2]), digest = ARGV[3] }
end

-- An answer: a word, the time, where the ledger ends.
local function told(word, time, head)
  if not head then
    return { word, whole(time) }
  end
  return { word, whole(time), { head.epoch, whole(head.revision), head.digest, whole(head.volume - head.base_volume) } }
end

-- What somebody missed who stands at a place: where the kept records begin, and some of them.
local function missed(head, at, time, budget)
  if not head then
    return told('empty', time)
  end
  read_base(head)
  local word, from
  if (is_origin(at) and head.snapshot == '') or has_place(head, at) then
    word, from = 'asked', at.revision + 1
  elseif is_origin(at) or (at.epoch == head.epoch and at.revision < head.base_revision) then
    word, from = 'snapshot', head.base_revision + 1
  else
    word, from = 'rewritten', head.base_revision + 1
  end
  local answer = told(word, time, head)
  answer[4] = { whole(head.base_revision), head.base_digest, head.snapshot, head.parts, head.bytes, head.hash }
  answer[5] = page(head, from, budget)
  return answer
end
