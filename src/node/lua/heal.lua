-- Puts the keys of a fenced lease and their fence back, all or none.
-- KEYS    the n keys of the lease, then the n records of their highest fences
-- ARGV    1 the token, 2 the TTL in milliseconds, 3 the fence of the lease, 4 the TTL of the records
-- Reply   1 if each was free or ours already and now is ours, 0 if one is held by another
local n = #KEYS / 2
for i = 1, n do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    if redis.call('TYPE', KEYS[i]).ok ~= 'string' or redis.call('GET', KEYS[i]) ~= ARGV[1] then
      return 0
    end
  end
end
for i = 1, n do
  -- Before the keys: one of another type is an error, and sets nothing then.
  if (tonumber(redis.call('GET', KEYS[n + i])) or 0) < tonumber(ARGV[3]) then
    redis.call('SET', KEYS[n + i], ARGV[3], 'PX', ARGV[4])
  end
end
for i = 1, n do
  redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
end
return 1
