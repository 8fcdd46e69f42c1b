-- Whether time has let the record go: a live claim never. It is judged here and nowhere else; that the server removes it
-- at some time after that is housekeeping.
local live = state == 1 and now < updated + lease
local gone = purge ~= 0 and not live and now >= updated + purge
