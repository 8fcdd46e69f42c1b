-- What every script must know of a record.
local updated, token, nonce, format, state, kind, lease, result, purge, previous, watched, steps =
  struct.unpack('<i8i8c16BBBi8i8i8BBH', r)
