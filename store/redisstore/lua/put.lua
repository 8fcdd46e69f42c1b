-- Keys end with the millisecond after the one in which the record is gone, so that the server never removes
-- what a claim would still find. Numbers are written by format: '..' and tostring round 16 digits.
local function ms(us) return string.format('%.0f', math.ceil(us / 1000)) end

-- put writes the record. Where purge is 0 it has no end; a live claim outlives purge until its lease ends.
local function put(record, purge, lease)
  if purge == 0 then
    redis.call('SET', KEYS[1], record)
  else
    redis.call('SET', KEYS[1], record, 'PXAT', ms(math.max(purge, lease)))
  end
end

-- keep gives the steps the record's end.
local function keep(steps, purge, lease)
  if steps == 0 then return end
  if purge == 0 then
    redis.call('PERSIST', KEYS[3])
  else
    redis.call('PEXPIREAT', KEYS[3], ms(math.max(purge, lease)))
  end
end
