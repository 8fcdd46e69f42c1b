#!lua flags=allow-oom
-- Ends an attempt without a result. Answers 0, 2 (newer format) or 3 (superseded).
-- ARGV: 1 token (empty: by nonce), 2 nonce, 3 state, 4 error class with its length, 5 step, 6 lifetime, 7 whether an
-- abandoned record has an end, 8 the record that a release by nonce may leave, from its fingerprint on, 9 whether a
-- repetition must write something too.
local r = redis.call('GET', KEYS[1])
--include time
--include put
--include tell
local by_nonce = ARGV[1] == ''

-- refuse leaves a record that knows the nonce of a claim which did not arrive yet.
local function refuse(token)
  local purge = now + ARGV[6]
  put(struct.pack('<BBBBBHi8i8i8i8i8i8', 1, 2, 0, 0, 0, 0, 0, 0, purge, now, 0, token) .. ARGV[2] ..
    struct.pack('<I4i8i8i8', 0, now, 0, 0) .. ARGV[8], purge, 0)
  redis.call('DEL', KEYS[2], KEYS[3])
  return 0
end

if not r then
  if by_nonce then return refuse(now) end
  return 3
end
local format, state, kind, previous, _, steps, until_lease, _, until_purge, _, completed, token = struct.unpack('<BBBBBHi8i8i8i8i8i8', r)
if format > 1 then return 2 end
local own = string.sub(r, 56, 71) == ARGV[2] and (by_nonce or string.sub(r, 48, 55) == ARGV[1])
if own and state == 1 then
  local back = by_nonce and (previous == 3 or previous == 1) -- nobody has settled what the claim found
  local ended = ARGV[3] + 0
  if back then ended = 3 end
  local length = struct.unpack('<H', r, 132)
  local _, unknown = struct.unpack('<Hc0Hc0', r, 136 + length)
  if not back or ARGV[5] ~= '' then unknown = ARGV[5] end
  local purge = 0
  if ended == 2 or ARGV[7] == '1' then purge = now + ARGV[6] end
  put(struct.pack('<BBBBBHi8i8i8i8i8', 1, ended, kind, previous, 0, steps, 0, 0, purge, now, completed) .. string.sub(r, 48, 133) ..
    struct.pack('<H', length + #ARGV[4]) .. string.sub(r, 136, 135 + length) .. ARGV[4] ..
    struct.pack('<Hc0HH', #unknown, unknown, 0, 0), purge, 0)
  keep(steps, purge, 0)
  tell(r)
  return 0
end
if own and state ~= 4 then -- repeated
  if ARGV[9] == '1' then redis.call('SETRANGE', KEYS[1], 0, string.char(format)) end
  return 0
end
if by_nonce and until_purge > 0 and now >= until_purge and (state ~= 1 or now >= until_lease) then
  return refuse(math.max(token + 1, now))
end
if by_nonce and state == 2 then -- the late packet of this claim is refused; the one before has ended long since
  redis.call('SETRANGE', KEYS[1], 55, ARGV[2])
  return 0
end
return 3
