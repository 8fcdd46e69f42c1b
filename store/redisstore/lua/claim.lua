-- Claims a record. Answers the time, a number, where there was none and the claim has it now; else the decision, the
-- time, the record as it stands, and its steps where they are asked about.
-- ARGV: 1 nonce, 2 take over, 3 lease, 4 lifetime (0: no end), 5 the new record from its fingerprint on.
local r = redis.call('GET', KEYS[1])
--include time
--include put
local lease = now + ARGV[3]
local purge = ARGV[4] + 0
if purge > 0 then purge = purge + now end
local settle = ARGV[2] > '1'

-- fresh is the record of a key that is new.
local function fresh(token)
  return struct.pack('<BBBBBHi8i8i8i8i8i8', 1, 1, 0, 0, 0, 0, lease, 0, purge, now, 0, token) .. ARGV[1] ..
    struct.pack('<I4i8i8i8', 1, now, now, 0) .. ARGV[5]
end

if not r then
  if settle then return {8, now} end
  put(fresh(now), purge, lease)
  return now
end

local format, state, kind, previous, watched, steps, until_lease, until_result, until_purge, updated, completed, token =
  struct.unpack('<BBBBBHi8i8i8i8i8i8', r)
if format > 1 then return {10, now} end
if until_purge > 0 and now >= until_purge and (state ~= 1 or now >= until_lease) then -- gone
  if settle then return {8, now} end
  r = fresh(math.max(token + 1, now))
  put(r, purge, lease)
  redis.call('DEL', KEYS[2], KEYS[3])
  return {1, now, r}
end

if string.sub(r, 100, 131) ~= string.sub(ARGV[5], 1, 32) then
  local asked = struct.unpack('<Hc0', ARGV[5], 37)
  if asked ~= '' and asked == struct.unpack('<Hc0', r, 136) then return {6, now, r} end
end

if state == 4 then
  if until_result > 0 and now >= until_result then return {3, now, r} end
  local saved = redis.call('GET', KEYS[2])
  if saved then return {2, now, saved} end
  return {2, now, r, 1}
end

local function answer(decision, record)
  if steps == 0 then return {decision, now, record} end
  return {decision, now, record, redis.call('HGETALL', KEYS[3])}
end

local own = string.sub(r, 56, 71) == ARGV[1]
if own and state == 1 then -- the same claim again
  r = struct.pack('<BBBBBHi8i8i8i8i8', format, 1, kind, previous, watched, steps, lease, 0, purge, now, completed) .. string.sub(r, 48)
  put(r, purge, lease)
  keep(steps, purge, lease)
  return answer(1, r)
end
if own then return {7, now, r} end

local found = state -- as time tells it
if state == 1 and now >= until_lease then found = 3 end
local algorithm, scope, name, owner, owner_before, class, unknown = struct.unpack('<Hc0Hc0Hc0Hc0Hc0Hc0Hc0', r, 136)
if found == 2 then
  if settle then return {9, now, r} end
elseif found == 1 then
  if ARGV[2] ~= '3' then return {4, now, r} end
elseif not (settle or ARGV[2] == '1' and unknown == '') then
  return answer(5, r)
end

if state == 1 then class = '' end -- its lease ended it, not an error
local sum = string.sub(r, 100, 131)
local asked, _, _, owner_now = struct.unpack('<Hc0Hc0Hc0Hc0', ARGV[5], 37)
if asked ~= '' then
  algorithm, sum = asked, string.sub(ARGV[5], 1, 32)
end
local first = struct.pack('<Hc0Hc0Hc0Hc0Hc0', #algorithm, algorithm, #scope, scope, #name, name, #owner_now, owner_now, #owner, owner)
local attempt, created, claimed = struct.unpack('<I4i8i8', r, 72)
r = struct.pack('<BBBBBHi8i8i8i8i8i8', 1, 1, 0, found, watched, steps, lease, 0, purge, now, completed, math.max(token + 1, now)) .. ARGV[1] ..
  struct.pack('<I4i8i8i8', attempt + 1, created, now, claimed) .. sum ..
  struct.pack('<HH', #first, #first + 2 + #class) .. first .. struct.pack('<Hc0Hc0HH', #class, class, #unknown, unknown, 0, 0)
put(r, purge, lease)
keep(steps, purge, lease)
return answer(1, r)
