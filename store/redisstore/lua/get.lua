#!lua flags=no-writes
-- Reads a record. Answers the time; and the record, with its result, if there is one; and its steps; and whether its
-- result is missing.
local r = redis.call('GET', KEYS[1])
--include time
if not r then return {now} end
local format, state, _, _, _, steps, until_lease, until_result, until_purge = struct.unpack('<BBBBBHi8i8i8', r)
if format > 1 then return {now, r} end
if until_purge > 0 and now >= until_purge and (state ~= 1 or now >= until_lease) then return {now} end
local held, missing = {}, 0
if state == 4 and (until_result == 0 or now < until_result) then
  local saved = redis.call('GET', KEYS[2])
  if saved then r = saved else missing = 1 end
end
if steps > 0 and (state ~= 4 or now < until_result) then held = redis.call('HGETALL', KEYS[3]) end
return {now, r, held, missing}
