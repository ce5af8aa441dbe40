-- Writes the marker of a node, unless one of the same run and the same history remembers longer already.
-- KEYS    1 the marker
-- ARGV    1 the run_id of now, 2 since when it remembers, 3 the replication id of now, 4 the marker to write
-- Reply   the marker that stands
local stands = redis.call('GET', KEYS[1])
if stands then
  local run_id, since, replication = string.match(stands, '^1 (%S+) (%d+) %S+ %S+ %S+ (%S+)$')
  -- Equal ones are written anew: how the node syncs may have changed.
  if run_id == ARGV[1] and replication == ARGV[3] and tonumber(since) < tonumber(ARGV[2]) then
    return stands
  end
end
redis.call('SET', KEYS[1], ARGV[4])
return ARGV[4]
