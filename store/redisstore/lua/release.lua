#!lua flags=allow-oom
-- Ends an attempt without a result. Answers 0, 2 (newer format) or 3 (superseded).
-- ARGV: 1 token (empty: by nonce), 2 nonce, 3 state, 4 error class with its length, 5 step, 6 lifetime, 7 whether an
-- abandoned record has an end, 8 the record that a release by nonce may leave, from its nonce on.
local r = redis.call('GET', KEYS[1])
--include time
--include keep
local by_nonce = ARGV[1] == ''

-- refuse leaves a record that knows the nonce of a claim which did not arrive yet.
local function refuse(token)
  redis.call('DEL', KEYS[2], KEYS[3])
  put(struct.pack('<i8i8', now, token) .. string.sub(ARGV[8], 1, 51) .. struct.pack('<i8', now) .. string.sub(ARGV[8], 60), now + ARGV[6])
  return 0
end

if not r then
  if by_nonce then return refuse(now) end
  return 3
end
--include read
if format > 1 then return 2 end
if by_nonce then -- who has not been told a token may be nobody that this record knows
--include whole
end
--include gone
if gone then
  if by_nonce then return refuse(math.max(token + 1, now)) end
  return 3
end
local own = nonce == ARGV[2] and (by_nonce or string.sub(r, 9, 16) == ARGV[1])
if own and state == 1 then
  local back = by_nonce and (previous == 3 or previous == 1) -- nobody has settled what the claim found
  local ended = ARGV[3] + 0
  if back then ended = 3 end
  local length = struct.unpack('<H', r, 124)
  local _, unknown = struct.unpack('<Hc0Hc0', r, 128 + length)
  if not back or ARGV[5] ~= '' then unknown = ARGV[5] end
  local life, till = 0
  if ended == 2 or ARGV[7] == '1' then
    life, till = ARGV[6], now + ARGV[6]
  end
  keep(steps, till)
  put(struct.pack('<i8', now) .. string.sub(r, 9, 32) .. struct.pack('<BBBi8i8i8', 1, ended, 0, 0, 0, life) .. string.sub(r, 60, 125) ..
    struct.pack('<H', length + #ARGV[4]) .. string.sub(r, 128, 127 + length) .. ARGV[4] .. struct.pack('<Hc0HH', #unknown, unknown, 0, 0), till)
  if watched > 0 then redis.pcall('PUBLISH', KEYS[1], '') end
  return 0
end
if own and state ~= 4 then return 0 end -- repeated
if by_nonce and state == 2 then -- the late packet of this claim is refused; the one before has ended long since
  redis.call('SETRANGE', KEYS[1], 16, ARGV[2])
  return 0
end
return 3
