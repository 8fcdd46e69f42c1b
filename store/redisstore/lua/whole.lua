-- What no version has written is no record: nobody takes over what nobody can read, and it is not over by a time that stands in it.
-- Whoever reads it judges it likewise (decode in record.go).
local attempt, created, claimed, prior, sum, low, high = struct.unpack('<I4i8i8i8c32HH', r, 64)
local algorithm, scope, name, owner, before, class, unknown = struct.unpack('<Hc0Hc0Hc0Hc0Hc0Hc0Hc0Hc0Hc0', r, 128)
local texts = 10 + #algorithm + #scope + #name + #owner + #before
local exact = 2 ^ 53 -- what a number has to be below
local least = state == 1 and 1 - exact or 0
if state < 1 or state > 4 or kind > 3 or (state == 4) ~= (kind ~= 0) or low ~= texts or high ~= texts + 2 + #class or
  format < 1 or token < 1 or token >= exact or previous > 4 or attempt >= 2 ^ 31 or
  updated < 1 or math.min(created, claimed, prior, result) < 0 or math.min(lease, purge) < least or
  math.max(updated, created, claimed, prior, lease, result, purge) >= exact then
  error('RECORD is damaged')
end
