#!lua flags=allow-oom
-- No ARGV. Drops what is ready and delayed, and the marks of what was offered again; what is in flight goes on.
-- Answers how many were dropped. Its work is bounded by what is in flight.
local count = call('ZCARD', ready) + call('ZCARD', delayed)
local running = call('ZRANGE', leases, 0, -1)
local kept = {[envelopes] = {}, [lost] = {}}
for hash, list in pairs(kept) do
  for first = 1, #running, 500 do
    for n, value in ipairs(call('HMGET', hash, unpack(running, first, math.min(first + 499, #running)))) do
      if value then
        list[#list + 1], list[#list + 2] = running[first + n - 1], value
      end
    end
  end
end
call('UNLINK', ready, delayed, again, bell, scores, envelopes, lost)
for hash, list in pairs(kept) do
  for first = 1, #list, 1000 do
    call('HSET', hash, unpack(list, first, math.min(first + 999, #list)))
  end
end
return count
