#!lua flags=allow-oom
-- ARGV: 1 if the row was claimed just now (else 0), then entries of three: member, token, ms. Answers 1 or 0 for each. Never shortens a lease; one that ran out but
-- was not yet recovered still belongs to its token.
local answers, members, _, _, places = holding(2, 3)
if #members > 0 then
  local now, ends = clock(), {}
  for n, member in ipairs(members) do
    ends[#ends + 1], ends[#ends + 2] = digits(now + tonumber(ARGV[places[n] + 2])), member
  end
  call('ZADD', leases, 'GT', unpack(ends))
  -- What was offered between the claim here and the claim of the row is what the row's run now serves. Keeping the
  -- mark would make every second job ready once more under load, only for its row to refuse.
  if ARGV[1] == '1' then
    call('ZREM', again, unpack(members))
  end
end
return answers
