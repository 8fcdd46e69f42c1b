#!lua flags=allow-oom
-- Writes a step. Answers 0, 1 (lease lost), 2 (newer format) or 4 (too many steps).
-- ARGV: 1 token and nonce, 2 name, 3 state, 4 attempt, 5 the step from its kind on, 6 lease (0: not renewed), 7 lifetime,
-- 8 the longer of both, 9 the limit of steps.
--include hold
--include keep
if steps == 0 then redis.call('DEL', KEYS[3]) end -- of a record that was evicted, or removed by hand
local began, ended, place = now, now, steps
if ARGV[3] == '1' then ended = 0 end
local stands = false
local old = redis.call('HGET', KEYS[3], ARGV[2])
local whole, state_before, attempt_before, its_place, its_beginning, _, kind_before = pcall(struct.unpack, '<BI4Hi8i8BHc0Hc0', old or '')
if whole and state_before >= 1 and state_before <= 3 and kind_before <= 3 and (state_before == 2) == (kind_before ~= 0) then -- else it is written over
  place, began = its_place, its_beginning
  stands = state_before == 2 or ARGV[3] == '1' and state_before ~= 1 and attempt_before == ARGV[4] + 0
elseif not old then
  if steps >= ARGV[9] + 0 then return 4 end
  steps = steps + 1
end
if not stands then
  redis.call('HSET', KEYS[3], ARGV[2], struct.pack('<BI4Hi8i8', ARGV[3], ARGV[4], place, began, ended) .. ARGV[5])
end
local till
if ARGV[6] ~= '0' then
  lease = ARGV[6]
  if purge ~= 0 then
    purge, till = ARGV[7], now + ARGV[8]
  end
else -- the ends stay where they are
  lease = updated + lease - now
  if purge ~= 0 then
    purge = updated + purge - now
    if purge == 0 then purge = -1 end
    till = now + math.max(lease, purge)
  end
end
if till then keep(steps, till) end
put(struct.pack('<i8', now) .. string.sub(r, 9, 35) .. struct.pack('<i8i8i8BBH', lease, 0, purge, previous, watched, steps) .. string.sub(r, 64), till)
return 0
