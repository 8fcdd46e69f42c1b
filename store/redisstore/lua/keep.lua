-- put writes the record; px is how long the server keeps it, in milliseconds: nothing is without end. The steps, in a key
-- of the same slot, end with it.
local function put(record, px)
  if px then
    redis.call('SET', KEYS[1], record, 'PX', px)
  else
    redis.call('SET', KEYS[1], record)
  end
end

local function keep(steps, px)
  if steps == 0 then return end
  if px then
    redis.call('PEXPIRE', KEYS[1] .. ':s', px)
  else
    redis.call('PERSIST', KEYS[1] .. ':s')
  end
end
