#!lua flags=allow-oom
-- Saves a result. Answers 0, 1 (lease lost) or 2 (newer format).
-- ARGV: 1 token, nonce, format, state, kind, and the lengths of lease, retention and lifetime; and then the record's end from
-- the unknown step on, 2 data.
local r = redis.call('GET', KEYS[1])
if not r then return 1 end
local format, state = string.byte(r, 33, 34)
if format > 1 then return 2 end
if string.sub(r, 9, 32) ~= string.sub(ARGV[1], 1, 24) then return 1 end
--include time
--include ends
local lease, _, purge, _, watched, few, many = struct.unpack('<i8i8i8BBBB', r, 36)
if purge ~= 0 then
  local updated = struct.unpack('<i8', r)
--include gone
  if gone then return 1 end
end
if state ~= 1 then
  if state ~= 4 then return 1 end
  return 0
end
local low, high = string.byte(r, 126, 127)
local retention, lifetime = struct.unpack('<i8i8', ARGV[1], 36)
local kept = ends(now + retention)
if few + many > 0 then redis.call('PEXPIREAT', KEYS[3], kept) end
r = struct.pack('<i8', now) .. string.sub(ARGV[1], 1, 51) .. string.sub(r, 60, 127 + low + 256 * high) .. string.sub(ARGV[1], 52)
if string.byte(ARGV[1], 27) ~= 3 then redis.call('SET', KEYS[2], r .. ARGV[2], 'PXAT', kept) end
redis.call('SET', KEYS[1], r, 'PXAT', ends(now + lifetime))
if watched > 0 then redis.pcall('PUBLISH', KEYS[1], '') end
return 0
