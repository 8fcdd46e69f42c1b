#!lua flags=no-writes
-- Reads a record. Answers the time; and the record, if there is one; and whether the data of its result follow it in the
-- same text; and its steps, of which some may be missing.
local r = redis.call('GET', KEYS[1])
--include time
if not r then return {now} end
--include read
if format > 1 then return {now, r} end
--include whole
--include gone
if gone then return {now} end
if state == 4 and now >= updated + result then return {now, r} end
local saved = state == 4 and redis.call('GET', KEYS[2])
if steps == 0 then return {now, saved or r, saved and 1} end
return {now, saved or r, saved and 1, redis.call('HGETALL', KEYS[3])}
