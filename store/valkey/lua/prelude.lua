-- Put before every script. All keys of one queue, always all of them, in this order (keys.py): one hash tag, one slot.
-- ready     zset  member -> score                 who may be claimed, lowest first
-- leases    zset  member -> when it runs out, ms  who is in flight
-- delayed   zset  member -> when it is due, ms
-- bell      list  at most one element: look again
-- tokens    hash  member -> score, token          of what is in flight; the score that it was claimed with
-- held      hash  token -> member                 the same turned round: a claim said twice gets the same answer
-- scores    hash  member -> score                 the place in ready that a delayed member will have
-- again     zset  member -> score                 offered again while in flight
-- envelopes hash  member -> bytes                 ordinary messages only; of a job the row is the truth
-- lost      hash  member -> leases that ran out   ordinary messages only
-- dead      zset  member -> when it was buried, ms
-- graves    hash  member -> bytes                 envelopes of the dead
-- paused    string                                there while nothing of this queue may be claimed
local ready, leases, delayed, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local tokens, held, scores, again = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local envelopes, lost, dead, graves, paused = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local call = redis.call

-- Lua itself writes 14 digits of a number and then an exponent: a score would lose its end.
local function digits(number)
  return string.format('%.0f', number)
end

-- What `tokens` holds: the score in 16 digits, which every score fits, and the token behind it.
local function tied(score, token)
  return string.format('%016.0f', score) .. token
end

local function token_of(tie)
  return string.sub(tie, 17)
end

local function score_of(tie)
  return string.sub(tie, 1, 16)
end

local function clock()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function ring()
  if call('LLEN', bell) == 0 then
    call('RPUSH', bell, '1')
  end
end

-- The lowest score of a zset, or nil.
local function soonest(zset)
  local head = call('ZRANGE', zset, 0, 0, 'WITHSCORES')
  return head[2] and tonumber(head[2])
end

-- Of two scores the lower, of one the one.
local function lower(one, other)
  if one and (not other or tonumber(one) <= tonumber(other)) then
    return one
  end
  return other
end

-- A zset's scores, or a hash's values, of these members: nil or false where there is none. Most of them are empty
-- most of the time, and asking that first is cheaper.
local function each(command, key, members)
  if #members == 0 or call('EXISTS', key) == 0 then
    return {}
  end
  return call(command, key, unpack(members))
end

-- Of the entries in ARGV (member, token ...; `width` values each, from `first` on) those whose token still holds.
-- Gives 1 or 0 for every entry; then of the held ones the members, their tokens, the scores that they were claimed
-- with, and where in ARGV they begin.
local function holding(first, width)
  local asked, answers = {}, {}
  local members, owners, claimed, places = {}, {}, {}, {}
  for place = first, #ARGV, width do
    asked[#asked + 1] = ARGV[place]
  end
  local ties = each('HMGET', tokens, asked)
  for n, member in ipairs(asked) do
    local place, at = first + (n - 1) * width, #members + 1
    answers[n] = 0
    if ties[n] and token_of(ties[n]) == ARGV[place + 1] then
      answers[n] = 1
      members[at], owners[at], claimed[at], places[at] = member, ARGV[place + 1], score_of(ties[n]), place
    end
  end
  return answers, members, owners, claimed, places
end

-- Ends leases. Where the members go from here is up to the caller.
local function vacate(members, owners)
  call('ZREM', leases, unpack(members))
  call('HDEL', tokens, unpack(members))
  call('HDEL', held, unpack(owners))
  call('ZREM', again, unpack(members))
end

-- Puts (score, member) pairs into a zset: of two scores the lower stands.
local function admit(zset, list)
  if #list > 0 then
    call('ZADD', zset, 'LT', unpack(list))
  end
end

-- These members are nowhere any more.
local function forget(members)
  for _, hash in ipairs({envelopes, lost}) do
    if #members > 0 and call('EXISTS', hash) == 1 then
      call('HDEL', hash, unpack(members))
    end
  end
end
