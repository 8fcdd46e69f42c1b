-- The steps as the hash has them. One that lacks some is not told: it moves to another node, or was given away.
local function held(steps)
  local all = redis.call('HGETALL', KEYS[3])
  if #all ~= 2 * steps then error('STEPS are missing') end
  return all
end
