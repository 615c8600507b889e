#!lua flags=allow-oom
-- ARGV: entries of three: member, token, delay in ms. Answers 1 or 0 for each.
local answers, members, owners, claimed, places = holding(1, 3)
if #members == 0 then
  return answers
end
local now, first = clock(), soonest(delayed)
local marks = each('ZMSCORE', again, members)
local letters = each('HMGET', envelopes, members)
local back, due = {}, {}
for n, member in ipairs(members) do
  local delay, score = tonumber(ARGV[places[n] + 2]), lower(marks[n], claimed[n])
  if delay > 0 then
    due[#due + 1], due[#due + 2] = digits(now + delay), member
    call('HSET', scores, member, score)
  end
  -- A message that was offered again is wanted now, whatever its holder says. A job's offers are the scheduler's
  -- habit and must not cut its delay short.
  if delay == 0 or (marks[n] and letters[n]) then
    back[#back + 1], back[#back + 2] = score, member
  end
end
vacate(members, owners)
admit(ready, back)
admit(delayed, due)
if #back > 0 or (#due > 0 and (not first or soonest(delayed) < first)) then
  ring()
end
return answers
