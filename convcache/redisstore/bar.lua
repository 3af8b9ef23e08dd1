-- Keeps one bar, and all others with it for as long.
-- ARGV: field; value; life of the hash in ms.
-- Answers: {'barred'}.
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'barred'}
