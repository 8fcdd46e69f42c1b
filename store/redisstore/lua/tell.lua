-- tell wakes those who wait for the record, if any do. It comes last, and may fail: they ask again by themselves.
local function tell(record)
  if string.byte(record, 5) ~= 0 then redis.pcall('PUBLISH', KEYS[1], '') end
end
