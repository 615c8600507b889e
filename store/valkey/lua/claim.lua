#!lua flags=allow-oom
-- ARGV: lease of a job in ms, lease of a message in ms, most to recover and to promote, then tokens.
-- Answers ms until something next runs out or is due (-1: nothing will), how many stay ready, then of everything
-- taken four values: member, token, envelope ('' = none), leases that it lost before.
-- May run when memory is short: refusing it would stop the very work that frees memory.
local short, full, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = clock()
local members, owners, free = {}, {}, {}
local open = call('EXISTS', paused) == 0

-- A token that holds something asks again because the answer was lost.
local holds = call('HMGET', held, unpack(ARGV, 4))
for n, member in ipairs(holds) do
  if member then
    members[#members + 1], owners[#owners + 1] = member, ARGV[n + 3]
    holds[member] = true
  else
    free[#free + 1] = ARGV[n + 3]
  end
end

local function recover()
  local late, past, back = {}, {}, {}
  for _, member in ipairs(call('ZRANGE', leases, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, limit)) do
    if not holds[member] then
      late[#late + 1] = member
    end
  end
  local marks = each('ZMSCORE', again, late)
  local ties = each('HMGET', tokens, late)
  local letters = each('HMGET', envelopes, late)
  for n, member in ipairs(late) do
    -- A server that evicts keys may have lost the hashes: the member comes back all the same.
    local tie = ties[n] or tied(0, '')
    past[n] = token_of(tie)
    back[#back + 1], back[#back + 2] = lower(marks[n], score_of(tie)), member
    if letters[n] then
      call('HINCRBY', lost, member, 1)
    end
  end
  if #late > 0 then
    vacate(late, past)
    admit(ready, back)
  end
end

local function promote()
  local due = call('ZRANGE', delayed, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, limit)
  local places = each('HMGET', scores, due)
  local admitted, marked = {}, {}
  for n, running in ipairs(call('ZMSCORE', leases, unpack(due))) do
    local list = running and marked or admitted
    list[#list + 1], list[#list + 2] = places[n] or '0', due[n]
  end
  admit(ready, admitted)
  admit(again, marked)
  call('ZREM', delayed, unpack(due))
  call('HDEL', scores, unpack(due))
end

local expiry, due = soonest(leases), soonest(delayed)
if expiry and expiry <= now then
  recover()
end
if due and due <= now then
  promote()
end

-- A queue that is paused hands out nothing; what is held is answered all the same.
if open and #free > 0 then
  local popped = call('ZPOPMIN', ready, #free)
  local ties, turned = {}, {}
  for n = 1, #popped, 2 do
    local member, owner = popped[n], free[(n + 1) / 2]
    members[#members + 1], owners[#owners + 1] = member, owner
    ties[n], ties[n + 1] = member, tied(popped[n + 1], owner)
    turned[n], turned[n + 1] = owner, member
  end
  if #popped > 0 then
    call('HSET', tokens, unpack(ties))
    call('HSET', held, unpack(turned))
  end
end

local answer = {-1, call('ZCARD', ready)}
if #members > 0 then
  local letters = each('HMGET', envelopes, members)
  local until_short, until_full = digits(now + short), digits(now + full)
  local ends = {}
  for n, member in ipairs(members) do
    local at, letter = n * 4 - 2, letters[n]
    answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = member, owners[n], letter or '', 0
    if letter then
      answer[at + 4] = tonumber(call('HGET', lost, member) or 0)
    end
    ends[n * 2 - 1], ends[n * 2] = letter and until_full or until_short, member
  end
  call('ZADD', leases, 'GT', unpack(ends)) -- a claim said again never shortens what a renewal gave
end

local nearest = lower(soonest(leases), soonest(delayed))
if nearest then
  answer[1] = math.max(0, nearest - now)
end
if open and answer[2] > 0 then
  ring()
else
  call('DEL', bell)
end
return answer
