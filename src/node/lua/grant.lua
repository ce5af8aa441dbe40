-- Sets all keys or none, and a fence with them.
-- KEYS    the n keys of the lease, then the n records of their highest fences
-- ARGV    1 the token, 2 the TTL in milliseconds, 3 the fence proposed, 4 the TTL of the records
-- Reply   1 if granted, 0 if held by another, {TIME, highest fence} in microseconds if the fence does not fit
local n = #KEYS / 2
local highest = 0
for i = 1, n do
  highest = math.max(highest, tonumber(redis.call('GET', KEYS[n + i])) or 0)
end
local now = redis.call('TIME')
local time = now[1] * 1000000 + now[2]
-- Higher than all before, and near this clock: a client's wrong clock costs a round and never a jump.
-- Up to highest + 1 and not a second more, or the numbers could climb ahead of time.
local fence = tonumber(ARGV[3])
local fits = fence > highest and fence >= time - 1000000 and fence <= math.max(time + 1000000, highest + 1)
-- One free key is the ordinary case: no look before the SET, because calls are what a script costs.
if not (fits and n == 1 and redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])) then
  for i = 1, n do
    -- A value of another type is somebody else's.
    local type = redis.call('TYPE', KEYS[i]).ok
    if type ~= 'none' and (type ~= 'string' or redis.call('GET', KEYS[i]) ~= ARGV[1]) then
      return 0
    end
  end
  if not fits then
    return { time, highest }
  end
  for i = 1, n do
    redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
  end
end
for i = 1, n do
  -- As it was given: a number made into text here would be in floating-point notation.
  redis.call('SET', KEYS[n + i], ARGV[3], 'PX', ARGV[4])
end
return 1
