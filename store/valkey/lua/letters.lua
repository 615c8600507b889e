#!lua flags=no-writes
-- ARGV: how many. Answers the dead, newest first, three values each: member, when it was buried in ms, envelope.
local buried = call('ZRANGE', dead, 0, tonumber(ARGV[1]) - 1, 'REV', 'WITHSCORES')
local answer = {}
for n = 1, #buried, 2 do
  local place = #answer
  answer[place + 1], answer[place + 2] = buried[n], digits(tonumber(buried[n + 1]))
  answer[place + 3] = call('HGET', graves, buried[n]) or ''
end
return answer
