#!lua flags=allow-oom
-- ARGV: entries of four: member, token, again (1 or 0), score ('' = the one that it was claimed with).
-- Answers 1 or 0 for each.
local answers, members, owners, claimed, places = holding(1, 4)
if #members == 0 then
  return answers
end
local marks = each('ZMSCORE', again, members)
local later = each('ZMSCORE', delayed, members)
local back, gone = {}, {}
for n, member in ipairs(members) do
  local score = marks[n]
  if ARGV[places[n] + 2] == '1' then
    local own = ARGV[places[n] + 3]
    score = lower(score, own ~= '' and own or claimed[n])
  end
  if score then
    back[#back + 1], back[#back + 2] = score, member
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
return answers
