#!lua flags=allow-oom
-- Extends a lease. Answers 0, 1 (lease lost) or 2 (newer format).
-- ARGV: 1 token and nonce, 2 the lengths of lease, retention (0) and lifetime, 3 how long the server keeps a record that has an end.
--include hold
--include time
--include keep
local px
if purge == 0 then
  r = struct.pack('<i8', now) .. string.sub(r, 9, 35) .. string.sub(ARGV[2], 1, 16) .. string.sub(r, 52)
else
  px = ARGV[3]
  r = struct.pack('<i8', now) .. string.sub(r, 9, 35) .. ARGV[2] .. string.sub(r, 60)
  keep(steps, px)
end
put(r, px)
return 0
