#!lua flags=allow-oom
-- Extends a lease. Answers 0, 1 (lease lost) or 2 (newer format).
-- ARGV: 1 token and nonce, 2 lease, 3 lifetime.
--include hold
--include time
--include put
local lease = now + ARGV[2]
if purge > 0 then
  purge = now + ARGV[3]
  redis.call('PEXPIREAT', KEYS[1], ms(math.max(purge, lease)))
  keep(steps, purge, lease)
end
redis.call('SETRANGE', KEYS[1], 7, struct.pack('<i8i8i8i8', lease, 0, purge, now))
return 0
