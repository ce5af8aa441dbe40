-- Sets all keys or none.
-- KEYS    the keys of the lease
-- ARGV    1 the token, 2 the TTL in milliseconds
-- Reply   1 if each was free or ours already and now is ours, 0 if one is held by another
for _, key in ipairs(KEYS) do
  if redis.call('EXISTS', key) == 1 then
    -- A value of another type is somebody else's.
    if redis.call('TYPE', key).ok ~= 'string' or redis.call('GET', key) ~= ARGV[1] then
      return 0
    end
  end
end
for _, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
end
return 1
