-- Claims a record. Answers the time, a number, where there was none and the claim has it now; a text, the record with the
-- data of its result after it, where that is a replay; else the decision, the time, the record as it stands, and its steps
-- where they are asked about. Of a replay whose data are missing it is the record.
-- ARGV: 1 the new record from its nonce on; and, all of them may be absent: 2 take over, 3 whether a result is judged by the
-- time, 4 the longer of lease and lifetime (absent: it has no end).
local saved = redis.call('GET', KEYS[2])
if saved and ARGV[3] ~= '1' and string.byte(saved, 33) == 1 and string.sub(saved, 92, 123) == string.sub(ARGV[1], 76, 107) then
  return saved -- what most duplicates find: whoever asks sees whether its end is near, and then asks again
end

--include time
--include keep
local take = ARGV[2] or '0'
local settle = take > '1'
local till = ARGV[4] and now + ARGV[4]
local r = redis.call('GET', KEYS[1])
if not r then
  if settle then return {8, now} end
  if saved then redis.call('DEL', KEYS[2], KEYS[3]) end -- of a record that was evicted, or removed by hand
  put(struct.pack('<i8i8', now, now) .. ARGV[1], till)
  return now
end

--include read
if format > 1 then return {10, now} end
--include whole
--include gone
--include held
if gone then
  if settle then return {8, now} end
  token = math.max(token + 1, now)
  redis.call('DEL', KEYS[2], KEYS[3])
  r = struct.pack('<i8i8', now, token) .. string.sub(ARGV[1], 1, 51) .. struct.pack('<i8i8', now, now) .. string.sub(ARGV[1], 68)
  put(r, till)
  return {1, now, r}
end

local asked_sum = string.sub(ARGV[1], 76, 107)
local asked, _, _, owner_now = struct.unpack('<Hc0Hc0Hc0Hc0', ARGV[1], 112)
if sum ~= asked_sum and asked ~= '' and asked == algorithm then return {6, now, r} end

if state == 4 then
  if now >= updated + result then return {3, now, r} end
  if saved then return saved end
  return {2, now, r}
end

local function answer(decision)
  if steps == 0 then return {decision, now, r} end
  return {decision, now, r, held(steps)}
end

local own = nonce == string.sub(ARGV[1], 1, 16)
if own and state == 1 then -- the same claim again
  local told = answer(1) -- it fails, if at all, before anything is written
  keep(steps, till)
  r = struct.pack('<i8', now) .. string.sub(r, 9, 35) .. string.sub(ARGV[1], 20, 43) .. string.sub(r, 60)
  put(r, till)
  told[3] = r
  return told
end
if own then return {7, now, r} end

local found = state -- as time tells it
if state == 1 and not live then found = 3 end
if found == 2 then
  if settle then return {9, now, r} end
elseif found == 1 then
  if take ~= '3' then return {4, now, r} end
elseif not (settle or take == '1' and unknown == '') then
  return answer(5)
end

if settle and steps > 0 then -- what the missing ones did is for who settles to find out
  if redis.call('TYPE', KEYS[3]).ok ~= 'hash' then redis.call('DEL', KEYS[3]) end
  steps = math.min(steps, redis.call('HLEN', KEYS[3]))
end
local told = answer(1)
if state == 1 then class = '' end -- its lease ended it, not an error
if asked ~= '' then
  algorithm, sum = asked, asked_sum
end
if created == 0 then created = token end
if claimed == 0 and attempt > 0 then claimed = token end
local first = struct.pack('<Hc0Hc0Hc0Hc0Hc0', #algorithm, algorithm, #scope, scope, #name, name, #owner_now, owner_now, #owner, owner)
r = struct.pack('<i8i8', now, math.max(token + 1, now)) .. string.sub(ARGV[1], 1, 43) ..
  struct.pack('<BBHI4i8i8i8', found, watched, steps, attempt + 1, created, now, claimed) .. sum ..
  struct.pack('<HH', #first, #first + 2 + #class) .. first .. struct.pack('<Hc0Hc0HH', #class, class, #unknown, unknown, 0, 0)
keep(steps, till)
put(r, till)
told[3] = r
return told
