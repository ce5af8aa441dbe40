-- Writes the marker of a node, unless one of the same run remembers longer already.
-- KEYS    1 the marker
-- ARGV    1 the run_id of now, 2 since when it remembers, 3 the marker to write
-- Reply   the marker that stands
local stands = redis.call('GET', KEYS[1])
if stands then
  local run_id, since = string.match(stands, '^1 (%S+) (%d+) ')
  -- Equal ones are written anew: how the node syncs may have changed.
  if run_id == ARGV[1] and tonumber(since) < tonumber(ARGV[2]) then
    return stands
  end
end
redis.call('SET', KEYS[1], ARGV[3])
return ARGV[3]
