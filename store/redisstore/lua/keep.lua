-- put writes the record; till is when it ends: nothing is never. The steps, in a key of the same slot, end with it.
--include ends
local function put(record, till)
  if till then
    redis.call('SET', KEYS[1], record, 'PXAT', ends(till))
  else
    redis.call('SET', KEYS[1], record)
  end
end

local function keep(steps, till)
  if steps == 0 then return end
  if till then
    redis.call('PEXPIREAT', KEYS[3], ends(till))
  else
    redis.call('PERSIST', KEYS[3])
  end
end
