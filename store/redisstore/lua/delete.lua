-- Removes a record of a scope, unless a live claim has it. Answers 0 (there is none of it), 1 (removed), 2 (a live claim) or 3 (newer format,
-- whose scope nobody here can read).
-- ARGV: 1 scope.
local r = redis.call('GET', KEYS[1])
if not r then return 0 end
--include time
--include read
if format > 1 then return 3 end
--include whole
--include gone
if scope ~= ARGV[1] and string.sub(scope, 1, #ARGV[1] + 1) ~= ARGV[1] .. '/' then return 0 end
if live then return 2 end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return 1
