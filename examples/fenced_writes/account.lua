-- Reads or writes an account for one who holds a fence, unless a higher fence was seen.
-- KEYS    1 the account: a hash of its balance and its highest fence
-- ARGV    1 the fence, 2 the new balance; without it the account is only read
-- Reply   the balance; nil if the fence is too old
local highest = tonumber(redis.call('HGET', KEYS[1], 'fence')) or 0
if tonumber(ARGV[1]) < highest then
  return false
end
-- As it was given: fences are below 2^53, so that the comparison above is exact.
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
if ARGV[2] then
  redis.call('HSET', KEYS[1], 'balance', ARGV[2])
end
return redis.call('HGET', KEYS[1], 'balance')
