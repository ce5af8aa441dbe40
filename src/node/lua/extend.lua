-- Renews the TTL of all keys if all hold the token.
-- KEYS    the keys of the lease
-- ARGV    1 the token, 2 the TTL in milliseconds
-- Reply   1 if renewed, 0 if one of them does not hold the token
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) ~= ARGV[1] then
    return 0
  end
end
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ARGV[2])
end
return 1
