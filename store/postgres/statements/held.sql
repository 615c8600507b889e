-- Of rows that a claim did not get: those that somebody's open transaction holds (they can't be locked here), and those
-- that it would get by now, because such a transaction has just ended. All others refuse.
WITH asked AS (
  SELECT * FROM json_to_recordset(%(claims)s::json) AS c(id uuid, lease_id uuid) ORDER BY id
), refusing AS (
  SELECT a.id
  FROM asked a CROSS JOIN LATERAL (
    SELECT FROM dramaturg.job j
    WHERE j.id = a.id AND j.lease_id IS DISTINCT FROM a.lease_id AND NOT EXISTS (
      SELECT FROM dramaturg.runnable r
      WHERE r.id = j.id AND r.run_at <= coalesce(%(now)s::timestamptz, clock_timestamp())
        AND a.lease_id IS DISTINCT FROM r.ended_lease AND a.lease_id IS DISTINCT FROM r.finish_token
    )
    FOR SHARE OF j SKIP LOCKED
  ) j
)
SELECT a.id::text
FROM asked a JOIN dramaturg.job j ON j.id = a.id
WHERE a.id NOT IN (SELECT r.id FROM refusing r)
