-- The steps as the hash has them. Nobody goes on from one that lacks some: it was given away.
local function held(steps)
  local all = redis.call('HGETALL', KEYS[3])
  if #all ~= 2 * steps then error('STEPS are missing') end
  return all
end
