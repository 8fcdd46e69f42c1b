-- Removes a record of a scope, unless a live claim has it. Answers how many were removed.
-- ARGV: 1 scope.
local r = redis.call('GET', KEYS[1])
if not r then return 0 end
--include time
--include read
--include gone
if format > 1 or live then return 0 end
local _, scope = struct.unpack('<Hc0Hc0', r, 128)
if scope ~= ARGV[1] and string.sub(scope, 1, #ARGV[1] + 1) ~= ARGV[1] .. '/' then return 0 end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return 1
