-- Take and put begin with this text. A conversation is a hash with slots 0 to 3 for four tickets. A ticket in slot 0 has
-- the fields 0i, its index, for scripts; 0b, for look-ups; and 0p, its params. Scripts do not read the last two.
--
-- Index, in bytes: 40 master_replid at the put, 13 end of life by this server's clock in decimal milliseconds,
-- 10 order of the put in decimal, 16 ticket id, and the kin (put.go): 1 that is 1 for a note, 4 block size, 4 blocks,
-- 4 tokens, 8 tag of all blocks, 8 of the whole.
local indexSize = 108

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The fence changes whenever this server may know less, or more, than another master: at every promotion,
-- resynchronisation and restart. run_id does not: after failover and failback it is the same, and tickets that were
-- taken meanwhile are there again. A replica has the fence of its master, so a writable replica must not use it. Without
-- a fence the script answers with the second value. READONLY tells the client that it has reached the wrong server.
local function fence()
  local info = redis.call('INFO', 'replication')
  if string.find(info, 'role:slave', 1, true) then return nil, redis.error_reply('READONLY this is a replica') end
  local _, at = string.find(info, 'master_replid:', 1, true)
  local id = at and string.match(info, '^%w+', at + 1)
  if id and #id == 40 then return id end
  return nil, {'unfenced'}
end

local function fields(slot)
  return slot .. 'i', slot .. 'b', slot .. 'p'
end
