-- Asks for the word of a running attempt's end. Answers whether there is one to wait for.
local r = redis.call('GETRANGE', KEYS[1], 0, 1)
if #r < 2 or string.byte(r, 2) ~= 1 then return 0 end
redis.call('SETRANGE', KEYS[1], 4, '\1')
return 1
