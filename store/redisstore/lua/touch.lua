#!lua flags=allow-oom
-- Writes a key as it stands, if there is one.
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('APPEND', KEYS[1], '') end
return 1
