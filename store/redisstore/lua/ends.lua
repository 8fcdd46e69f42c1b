-- ends is until which millisecond the server keeps what ends at a time: a little longer, for it is collected then, and not
-- judged. No length of time: that would run from the beginning of the script, which is before its TIME.
local function ends(us)
  return math.ceil(us / 1000) + 1
end
