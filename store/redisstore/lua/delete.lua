-- Removes a record of a scope, unless a live claim has it. Answers how many were removed.
-- ARGV: 1 scope.
local r = redis.call('GET', KEYS[1])
if not r then return 0 end
--include time
--include read
if format > 1 then return 0 end
--include whole
--include gone
if live then return 0 end
if scope ~= ARGV[1] and string.sub(scope, 1, #ARGV[1] + 1) ~= ARGV[1] .. '/' then return 0 end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return 1
