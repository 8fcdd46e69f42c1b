-- Whether time has let the record go: a live claim never.
local live = state == 1 and now < updated + lease
local gone = purge ~= 0 and not live and now >= updated + purge
