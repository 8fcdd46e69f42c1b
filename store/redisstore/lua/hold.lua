-- The record, if the attempt with the token and nonce of ARGV[1] holds it, lapsed or not.
local r = redis.call('GET', KEYS[1])
if not r then return 1 end
--include time
--include read
--include gone
if format > 1 then return 2 end
if gone or state ~= 1 or string.sub(r, 9, 32) ~= ARGV[1] then return 1 end
