-- One statement for all filters: a condition whose parameter is null is gone before the planner chooses, as nothing is
-- prepared and the values are known to it. So the partial indexes are seen.
SELECT {job}
FROM dramaturg.job
WHERE {matches}
ORDER BY {order}
LIMIT %(limit)s
