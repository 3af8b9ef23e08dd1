-- Stores one mark of an engine, and extends the life of all marks.
-- ARGV: field; value; life of the hash in ms.
-- Answers: {'stored'}.
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'stored'}
