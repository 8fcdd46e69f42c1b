-- The server's clock is the clock: microseconds since 1970, exact in a Lua number until the year 2255.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
