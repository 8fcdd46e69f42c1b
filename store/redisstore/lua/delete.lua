-- Removes a record of a scope, unless a live claim has it. Answers how many were removed.
-- ARGV: 1 scope.
local r = redis.call('GET', KEYS[1])
if not r then return 0 end
--include time
local format, state, _, _, _, _, until_lease = struct.unpack('<BBBBBHi8', r)
if format > 1 or state == 1 and now < until_lease then return 0 end
local _, scope = struct.unpack('<Hc0Hc0', r, 136)
if scope ~= ARGV[1] and string.sub(scope, 1, #ARGV[1] + 1) ~= ARGV[1] .. '/' then return 0 end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return 1
