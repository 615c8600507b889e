#!lua flags=allow-oom
-- ARGV: how long in ms and how many dead letters are kept, then pairs: member, token. Answers 1 or 0 for each.
-- What has no envelope leaves nothing to bury.
local keep, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local answers, members, owners = holding(3, 2)
if #members == 0 then
  return answers
end
local now = clock()
local marks = each('ZMSCORE', again, members)
local later = each('ZMSCORE', delayed, members)
local letters = each('HMGET', envelopes, members)
local back, gone = {}, {}
for n, member in ipairs(members) do
  if letters[n] then
    call('ZADD', dead, digits(now), member)
    call('HSET', graves, member, letters[n])
  end
  if marks[n] then
    back[#back + 1], back[#back + 2] = marks[n], member
  elseif not later[n] then
    gone[#gone + 1] = member
  end
end
vacate(members, owners)
admit(ready, back)
forget(gone)
if #back > 0 then
  ring()
end

-- Bounded, yet faster than letters arrive.
local bound = #members + 100
local function dig(old)
  if #old > 0 then
    call('ZREM', dead, unpack(old))
    call('HDEL', graves, unpack(old))
  end
end
dig(call('ZRANGE', dead, '-inf', digits(now - keep), 'BYSCORE', 'LIMIT', 0, bound))
local excess = math.min(call('ZCARD', dead) - most, bound)
if excess > 0 then
  dig(call('ZRANGE', dead, 0, excess - 1))
end
call('PEXPIRE', dead, digits(keep))
call('PEXPIRE', graves, digits(keep))
return answers
