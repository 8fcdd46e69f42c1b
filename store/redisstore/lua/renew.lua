#!lua flags=allow-oom
-- Extends a lease. Answers 0, 1 (lease lost) or 2 (newer format).
-- ARGV: 1 token and nonce, 2 the lengths of lease, retention (0) and lifetime, 3 the longer of lease and lifetime.
--include hold
--include keep
local till
if purge == 0 then
  r = struct.pack('<i8', now) .. string.sub(r, 9, 35) .. string.sub(ARGV[2], 1, 16) .. string.sub(r, 52)
else
  till = now + ARGV[3]
  r = struct.pack('<i8', now) .. string.sub(r, 9, 35) .. ARGV[2] .. string.sub(r, 60)
  keep(steps, till)
end
put(r, till)
return 0
