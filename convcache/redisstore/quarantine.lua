-- Stores one quarantine, and prolongs the life of all others with it. The field 'all' lists the names of the fields that
-- were added last, 16 bytes each.
-- ARGV: field; value; life of the hash in ms; how many are listed at most.
-- Answers: {'stored'}.
local all = redis.call('HMGET', KEYS[1], 'all')[1] or ''
local listed = false
for at = 1, #all, 16 do
  listed = listed or string.sub(all, at, at + 15) == ARGV[1]
end
if not listed then
  all = all .. ARGV[1]
  while #all > 16 * tonumber(ARGV[4]) do
    redis.call('HDEL', KEYS[1], string.sub(all, 1, 16))
    all = string.sub(all, 17)
  end
end
redis.call('HSET', KEYS[1], 'all', all, ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'stored'}
