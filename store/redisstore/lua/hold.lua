-- The record, if the attempt with the token and nonce of ARGV[1] holds it, lapsed or not.
local r = redis.call('GET', KEYS[1])
if not r then return 1 end
local format, state, _, _, _, steps, _, _, purge = struct.unpack('<BBBBBHi8i8i8', r)
if format > 1 then return 2 end
if state ~= 1 or string.sub(r, 48, 71) ~= ARGV[1] then return 1 end
