#!lua
-- ARGV: entries of four: member, delay in ms, score, envelope. Of two delays of one member the sooner stands.
-- A member that is ready or in flight too stays so: this is one more time that it is wanted.
local now, first = clock(), soonest(delayed)
local due, places, letters = {}, {}, {}
for n = 1, #ARGV, 4 do
  local at = #due
  due[at + 1], due[at + 2] = digits(now + tonumber(ARGV[n + 1])), ARGV[n]
  places[at + 1], places[at + 2] = ARGV[n], ARGV[n + 2]
  letters[at + 1], letters[at + 2] = ARGV[n], ARGV[n + 3]
end
admit(delayed, due)
call('HSET', scores, unpack(places))
call('HSET', envelopes, unpack(letters))
if not first or soonest(delayed) < first then
  ring() -- those who wait have been told of a later moment, or of none
end
return #due / 2
