-- Raises the epoch to the replica's if it is lower, else by one if asked to. A value that is no number counts as 0.
-- ARGV: epoch of the replica; 1 to raise it, else 0.
-- Answers: {epoch}.
local there = redis.call('HMGET', KEYS[1], '0i')[1]
local epoch = tonumber(string.match(there or '', '^%d+$') or 0)
epoch = string.format('%.0f', math.max(epoch + tonumber(ARGV[2]), tonumber(ARGV[1])))
if epoch ~= there and (there or epoch ~= '0') then redis.call('HSET', KEYS[1], '0i', epoch) end
return {epoch}
