-- Sets all keys or none, and a fence with them.
-- KEYS    the n keys of the lease, then the n records of their highest fences
-- ARGV    1 the token, 2 the TTL in milliseconds, 3 the fence proposed, 4 the TTL of the records
-- Reply   {verdict, TIME, highest fence}, the last two in microseconds; verdict 1: granted, 0: held by
--         another, 2: the fence does not fit
local n = #KEYS / 2
local now = redis.call('TIME')
local time = now[1] * 1000000 + now[2]
local highest = 0
for i = 1, n do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    -- A value of another type is somebody else's.
    if redis.call('TYPE', KEYS[i]).ok ~= 'string' or redis.call('GET', KEYS[i]) ~= ARGV[1] then
      return { 0, time, highest }
    end
  end
  highest = math.max(highest, tonumber(redis.call('GET', KEYS[n + i])) or 0)
end
-- Higher than all before, and near this clock: a client's wrong clock costs a round and never a jump.
-- Up to highest + 1 and not a second more, or the numbers could climb ahead of time.
local fence = tonumber(ARGV[3])
if fence <= highest or fence < time - 1000000 or fence > math.max(time + 1000000, highest + 1) then
  return { 2, time, highest }
end
for i = 1, n do
  redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
  -- As it was given: a number made into text here would be in floating-point notation.
  redis.call('SET', KEYS[n + i], ARGV[3], 'PX', ARGV[4])
end
return { 1, time, highest }
