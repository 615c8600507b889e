#!lua
-- ARGV: watermark, force (1 or 0), then entries of three: member, score, envelope ('' = none).
-- Answers how many are new in ready, were known, were dropped; and the size of ready.
local watermark, force = tonumber(ARGV[1]), ARGV[2] == '1'
local members = {}
for place = 3, #ARGV, 3 do
  members[#members + 1] = ARGV[place]
end
local waiting = each('ZMSCORE', ready, members)
local running = each('ZMSCORE', leases, members)
local later = each('ZMSCORE', delayed, members)
local size = call('ZCARD', ready)
local new, known, dropped = 0, 0, 0
local admitted, marked, letters, seen = {}, {}, {}, {}
for n, member in ipairs(members) do
  local score, envelope = ARGV[n * 3 + 1], ARGV[n * 3 + 2]
  local list = admitted
  if running[n] then
    known, list = known + 1, marked
  elseif waiting[n] or seen[member] then
    known = known + 1
  elseif envelope == '' and later[n] then
    -- A job given back with a delay: the scheduler's offers, many a second, must not cut it short.
    known, list = known + 1, nil
  elseif envelope == '' and size >= watermark and not force then
    -- The row is the truth and will be offered again. A message lives here alone.
    dropped, list = dropped + 1, nil
  else
    new, size, seen[member] = new + 1, size + 1, true
  end
  if list then
    list[#list + 1], list[#list + 2] = score, member
    if envelope ~= '' then
      letters[#letters + 1], letters[#letters + 2] = member, envelope
    end
  end
end
admit(ready, admitted)
admit(again, marked)
if #letters > 0 then
  call('HSET', envelopes, unpack(letters))
end
if size > 0 then
  ring()
end
return {new, known, dropped, size}
