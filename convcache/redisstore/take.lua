-- Takes one ticket out of a conversation.
-- ARGV: ticket id.
-- Answers: {'taken', branch, params}, {'consumed'}, {'expired'}, {'fenced'}, {'unfenced'}.
local found = redis.call('HMGET', KEYS[1], '0i', '1i', '2i', '3i', '0b', '0p') -- mostly there is only slot 0
for n = 1, 4 do
  local index = found[n]
  if index and #index == indexSize and string.sub(index, 64, 79) == ARGV[1] then
    local i, b, p = fields(n - 1)
    local values = n == 1 and {found[5], found[6]} or redis.call('HMGET', KEYS[1], b, p)
    local current, none = fence()
    if not current then return none end
    redis.call('HDEL', KEYS[1], i, b, p)
    if string.sub(index, 1, 40) ~= current then return {'fenced'} end
    if (tonumber(string.sub(index, 41, 53)) or 0) <= now() then return {'expired'} end
    return {'taken', values[1], values[2]}
  end
end
return {'consumed'}
