-- Asks for the word of a running attempt's end. Answers whether there is one to wait for.
local r = redis.call('GETRANGE', KEYS[1], 0, 63)
if #r < 63 then return 0 end
--include time
--include read
--include gone
if format > 1 or state ~= 1 or gone then return 0 end
redis.call('SETRANGE', KEYS[1], 60, '\1')
return 1
