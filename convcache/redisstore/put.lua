-- Stores one ticket or note as the newest branch of a conversation, and removes the branches that it displaces.
-- ARGV: ticket id and kin (the index from byte 64 on); branch; params; life in ms; tags of the first, the first two, …
-- all blocks, or '' to be asked for them; ids of branches that don't outdate the note.
-- Answers: {'stored', then index, branch and params of each removed ticket, newest first}, {'unfenced'}.
-- After other answers nothing has changed: {'tags'} asks for the tags, which are as long as a branch and seldom needed;
-- {'others', then index and branch of each} asks which of them outdate the note, because only the client can read
-- branches; {'superseded'} means that tickets fill all slots.
local current, none = fence()
if not current then return none end
local present = now()

local function kin(index)
  local k = {}
  k.id, k.note, k.size, k.blocks, k.tokens, k.last, k.whole = struct.unpack('>c16BI4I4I4c8c8', index, 64)
  k.note = k.note == 1
  return k
end

-- tonumber also reads nan, inf and 0x, which only other programs write.
local function digits(index, from, to)
  return tonumber(string.match(string.sub(index, from, to), '^%d+$') or 0)
end

local function equal(old, new)
  return old.tokens > 0 and old.tokens == new.tokens and old.size == new.size and old.whole == new.whole
end

local untagged = false

local function superfluous(old, new)
  if new.note and not old.note then return false end
  if equal(old, new) then return true end
  if old.size ~= new.size or old.tokens >= new.tokens or old.blocks == 0 or old.blocks > new.blocks then
    return false
  end
  untagged = ARGV[5] == ''
  return old.last == string.sub(ARGV[5], old.blocks * 8 - 7, old.blocks * 8)
end

-- Usable tickets, newest first, and slots that are free. Mostly there is no ticket.
local function sort(found)
  local new, usable, free = kin(string.rep(' ', 63) .. ARGV[1]), {}, {}
  for n, index in ipairs(found) do
    local old = index and #index == indexSize and kin(index)
    local expires = old and digits(index, 41, 53) or 0
    if old and old.id ~= new.id and string.sub(index, 1, 40) == current and expires > present then
      old.slot, old.index, old.expires, old.order = n - 1, index, expires, digits(index, 54, 63)
      table.insert(usable, old)
    else
      table.insert(free, n - 1)
    end
  end
  table.sort(usable, function(a, b) return a.order > b.order end)
  return new, usable, free
end

-- The branches that the client must judge before a note is stored. An index has only the tag of all blocks, so the script
-- can't compare it with a note of fewer blocks.
local function others(usable, new)
  local asked = {'others'}
  for _, old in ipairs(usable) do
    local longer = new.tokens > 0 and old.size == new.size and old.tokens >= new.tokens
    if new.note and longer and not string.find(ARGV[6], old.id, 1, true) then
      local _, b = fields(old.slot)
      table.insert(asked, old.index)
      table.insert(asked, redis.call('HMGET', KEYS[1], b)[1] or '')
    end
  end
  return asked
end

-- The oldest branch that stays has to free its slot. A note does not displace a ticket.
local function oldest(staying, new)
  for at = #staying, 1, -1 do
    if staying[at].note or not new.note then return at end
  end
end

local answer, free, order, ends = {'stored'}, {0}, 0, 0
local found = redis.call('HMGET', KEYS[1], '0i', '1i', '2i', '3i')
if found[1] or found[2] or found[3] or found[4] then
  local new, usable, leaving, staying = nil, nil, {}, {}
  new, usable, free = sort(found)
  local asked = others(usable, new)
  if #asked > 1 then return asked end
  order = usable[1] and usable[1].order or 0
  for _, old in ipairs(usable) do
    local drop = superfluous(old, new)
    if untagged then return {'tags'} end
    table.insert(drop and leaving or staying, old)
  end
  if #staying == 4 then
    local at = oldest(staying, new)
    if not at then return {'superseded'} end
    table.insert(leaving, table.remove(staying, at))
  end
  for _, old in ipairs(staying) do ends = math.max(ends, old.expires) end
  for _, old in ipairs(leaving) do
    local _, b, p = fields(old.slot)
    local values = redis.call('HMGET', KEYS[1], b, p)
    table.insert(answer, old.index)
    table.insert(answer, values[1] or '')
    table.insert(answer, values[2] or '')
    table.insert(free, old.slot)
  end
end

-- A full server refuses only the first write; nothing is lost then.
local life = tonumber(ARGV[4])
local i, b, p = fields(table.remove(free, 1))
redis.call('HSET', KEYS[1], b, ARGV[2], p, ARGV[3],
  i, current .. string.format('%013d', present + life) .. string.format('%010d', order % 9999999999 + 1) .. ARGV[1])
for _, slot in ipairs(free) do
  redis.call('HDEL', KEYS[1], fields(slot))
end
redis.call('PEXPIRE', KEYS[1], math.max(ends - present, life))
return answer
