#!lua flags=allow-oom
-- ARGV: entries of three: member, token, ms. Answers 1 or 0 for each. Never shortens a lease; one that ran out but
-- was not yet recovered still belongs to its token.
local answers, members, _, _, places = holding(1, 3)
if #members > 0 then
  local now, ends = clock(), {}
  for n, member in ipairs(members) do
    ends[#ends + 1], ends[#ends + 2] = digits(now + tonumber(ARGV[places[n] + 2])), member
  end
  call('ZADD', leases, 'GT', unpack(ends))
end
return answers
