-- Takes one ticket out of a conversation.
-- ARGV: ticket id; fence, or '' to read it.
-- Answers: {'taken', branch, params}, {'consumed'}, {'expired'}, {'fenced'}, {'unfenced'}.
for slot, index in ipairs(indexes()) do
  if index and #index == indexSize and string.sub(index, 64, 79) == ARGV[1] then
    local i, b, p = fields(slot - 1)
    local values = redis.call('HMGET', KEYS[1], b, p)
    local current, none = fence(ARGV[2])
    if not current then return none end
    redis.call('HDEL', KEYS[1], i, b, p)
    if string.sub(index, 1, 40) ~= current then return {'fenced'} end
    if (tonumber(string.sub(index, 41, 53)) or 0) <= now() then return {'expired'} end
    return {'taken', values[1], values[2]}
  end
end
return {'consumed'}
