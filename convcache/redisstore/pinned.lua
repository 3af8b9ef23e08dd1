-- Stores how many tokens a replica pins on one incarnation of decode, and drops old numbers.
-- ARGV: replica; its tokens; how long a number counts in ms.
-- Answers: the tokens of each other replica.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local notes, others = string.format('%s %.0f %s;', ARGV[1], now, ARGV[2]), {}
local there = redis.call('HMGET', KEYS[1], '0i')[1] or ''
for replica, at, tokens in string.gmatch(there, '(%x+) (%d+) (%d+);') do
  if replica ~= ARGV[1] and math.abs(now - at) < tonumber(ARGV[3]) then
    notes = notes .. replica .. ' ' .. at .. ' ' .. tokens .. ';'
    others[#others + 1] = tokens
  end
end
redis.call('HSET', KEYS[1], '0i', notes)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return others
