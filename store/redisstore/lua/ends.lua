-- ends is until which millisecond the server keeps what ends at a time: a little longer, for it is collected then, and not
-- judged. No length of time: that would run from the beginning of the script, which is before its TIME. As a text, for the
-- server would write a number with 17 digits.
local function ends(us)
  return string.format('%d', math.ceil(us / 1000) + 1)
end
