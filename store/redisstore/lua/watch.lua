-- Asks for the word of a running attempt's end. Answers whether there is one to wait for.
local head = redis.call('GETRANGE', KEYS[1], 32, 33)
if #head < 2 or string.byte(head, 2) ~= 1 then return 0 end
redis.call('SETRANGE', KEYS[1], 60, '\1')
return 1
