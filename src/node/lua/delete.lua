-- Deletes the keys that hold the token, and no other.
-- KEYS    the keys of the lease
-- ARGV    1 the token
-- Reply   1 if all of them held it, 0 if one did not
local all = 1
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then
    redis.call('DEL', key)
  else
    all = 0
  end
end
return all
