#!lua flags=allow-oom
-- Saves a result. Answers 0, 1 (lease lost) or 2 (newer format).
-- ARGV: 1 token and nonce, 2 retention, 3 retention + remember, 4 kind, 5 the record's end from the unknown step on,
-- 6 data, 7 whether a repetition must write something too.
local r = redis.call('GET', KEYS[1])
if not r then return 1 end
local format, state, _, previous, _, steps = struct.unpack('<BBBBBH', r)
if format > 1 then return 2 end
if string.sub(r, 48, 71) ~= ARGV[1] then return 1 end
if state == 4 then
  if ARGV[7] == '1' then redis.call('SETRANGE', KEYS[1], 0, string.char(format)) end
  return 0
end
if state ~= 1 then return 1 end
--include time
--include put
--include tell
local until_result, purge = now + ARGV[2], now + ARGV[3]
local done = struct.pack('<BBBBBHi8i8i8i8i8', 1, 4, ARGV[4], previous, 0, steps, 0, until_result, purge, now, now) ..
  string.sub(r, 48, 135 + struct.unpack('<H', r, 134)) .. ARGV[5]
put(done, purge, 0)
redis.call('SET', KEYS[2], done .. ARGV[6], 'PXAT', ms(until_result))
keep(steps, until_result, 0)
tell(r)
return 0
