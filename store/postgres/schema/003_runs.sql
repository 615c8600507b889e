-- What workers do many times a second, as functions: a session plans them once, where a statement of this size takes
-- 0.4 to 1 ms to plan each time, and prepared statements don't get through every pooler. What a claim of fifty rows costs
-- the server, a row: 25 us against 40 as a plain statement; a swap: 34 against 62; of four rows: 133 against 233, and 127
-- against 369.
--
-- Each finds its rows one by one by their ids (LATERAL with a row lock is never flattened), in the order of the ids,
-- passing by those that another transaction has locked. Written as a plain join, the planner once chose to read every
-- due row: 10 ms instead of 1. The same is why hash and merge joins and sequential scans are off here, and why a state
-- is asked for behind coalesce(): a session that plans while the table is empty would as soon take the partial index of
-- that state, and read all of it for each id once the table has grown.

-- Rows that may run now, at most `most` of each queue, in the order of the offer; after: null, or an array of {queue,
-- priority, run_at, id} with the queues to go on with, and the row after which. Every step is a seek in job_due: the next
-- lane (a queue, type and priority that has queued rows), then its first rows up to now. So rows that are not due cost
-- nothing, nor do those of a paused queue or of a type that nobody published; only those of a domain that is paused by
-- itself are passed one by one.
-- At 200,000 rows, 1,000 of them due in three queues: 1.2 ms for 300 answers, and no more when 100,000 others become due;
-- of a paused domain those cost 125 ms, and 44 once vacuum has been there. As a plain statement it took 6 ms, since the
-- planner chose to read and sort all that is due in a lane; that is why bitmap scans are off here.
CREATE FUNCTION dramaturg.due_rows(after json, most integer, moment timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, queue text, priority smallint, run_at timestamptz)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  clock timestamptz := coalesce(moment, clock_timestamp());
BEGIN
  IF to_regclass('dramaturg.limited') IS NOT NULL THEN
    RETURN QUERY SELECT * FROM dramaturg.due_within(after, most, clock); -- made of this text, see 005
    RETURN;
  END IF;
  RETURN QUERY
  WITH RECURSIVE walk AS (
    (
      SELECT j.queue, j.job_type, j.priority FROM dramaturg.job j WHERE j.state = 'queued'
      ORDER BY j.queue, j.job_type, j.priority LIMIT 1
    )
    UNION ALL
    SELECT n.*
    FROM walk w CROSS JOIN LATERAL (
      SELECT j.queue, j.job_type, j.priority
      FROM dramaturg.job j
      WHERE j.state = 'queued' AND (j.queue, j.job_type, j.priority) > (w.queue, w.job_type, w.priority)
      ORDER BY j.queue, j.job_type, j.priority LIMIT 1
    ) n
  ), page AS (
    SELECT * FROM json_to_recordset(after) AS a(queue text, priority smallint, run_at timestamptz, id uuid)
  ), lane AS (
    SELECT
      w.*,
      CASE WHEN w.priority = p.priority THEN p.run_at ELSE '-infinity' END AS run_at,
      CASE WHEN w.priority = p.priority THEN p.id ELSE '00000000-0000-0000-0000-000000000000' END AS id
    FROM walk w LEFT JOIN page p ON p.queue = w.queue
    WHERE (after IS NULL OR p.priority <= w.priority)
      -- What the view asks of every row, asked once: it spares the whole lane.
      AND EXISTS (SELECT FROM dramaturg.document d WHERE d.kind = 'policy' AND d.key = w.job_type)
      AND NOT EXISTS (
        SELECT FROM dramaturg.document d WHERE d.kind = 'queue' AND d.key = w.queue AND d.body ->> 'paused' = 'true'
      )
  ), found AS (
    SELECT
      r.id, l.queue, l.priority, r.run_at,
      row_number() OVER (PARTITION BY l.queue ORDER BY l.priority, r.run_at, r.id) AS place
    FROM lane l CROSS JOIN LATERAL (
      SELECT r.id, r.run_at
      FROM dramaturg.admitted r
      WHERE r.state = 'queued' AND r.queue = l.queue AND r.job_type = l.job_type AND r.priority = l.priority
        AND r.run_at <= clock AND (r.run_at, r.id) > (l.run_at, l.id) /* and within limits */
      ORDER BY r.run_at, r.id
      LIMIT most
    ) r
  )
  SELECT f.id, f.queue::text, f.priority, f.run_at
  FROM found f WHERE f.place <= most
  ORDER BY f.queue, f.priority, f.run_at, f.id;
END
$$;

-- claims: an array of {id, lease_id, worker, seconds}, no id twice. Answers the rows that are now, or were already,
-- held under the lease that the claim names; which may be the same row twice. within: limits were looked at.
CREATE FUNCTION dramaturg.claim_rows(claims json, moment timestamptz DEFAULT NULL, within boolean DEFAULT false)
RETURNS SETOF dramaturg.job
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  clock timestamptz := coalesce(moment, clock_timestamp());
  taken integer;
BEGIN
  IF NOT within AND to_regclass('dramaturg.limited') IS NOT NULL THEN
    RETURN QUERY SELECT * FROM dramaturg.claim_within(claims, clock);
    RETURN;
  END IF;
  RETURN QUERY
  WITH asked AS (
    SELECT * FROM json_to_recordset(claims) AS c(id uuid, lease_id uuid, worker text, seconds double precision)
    ORDER BY id
  ), locked AS (
    SELECT a.*
    FROM asked a CROSS JOIN LATERAL (
      SELECT
      FROM dramaturg.admitted r
      WHERE r.id = a.id AND coalesce(r.state, '') = 'queued' AND r.run_at <= clock
        AND a.lease_id IS DISTINCT FROM r.ended_lease AND a.lease_id IS DISTINCT FROM r.finish_token
      FOR NO KEY UPDATE OF r SKIP LOCKED
    ) r
  )
  UPDATE dramaturg.job j SET
    state = 'processing',
    due_at = j.run_at,
    run_at = 'infinity',
    revision = j.revision + 1,
    lease_id = l.lease_id,
    attempt = j.attempt + 1,
    leased_until = dramaturg.later(clock, l.seconds),
    worker = l.worker,
    stopping = false,
    started_at = clock,
    progress_percent = NULL,
    progress_message = NULL,
    updated_at = clock
  FROM locked l
  WHERE j.id = l.id
  RETURNING j.*;

  GET DIAGNOSTICS taken = ROW_COUNT;
  IF taken < json_array_length(claims) THEN
    RETURN QUERY
    SELECT j.*
    FROM json_to_recordset(claims) AS a(id uuid, lease_id uuid)
    JOIN dramaturg.job j ON j.id = a.id AND j.lease_id = a.lease_id
    WHERE j.state = 'processing';
  END IF;
END
$$;

-- Of rows that a claim did not get: those that somebody's open transaction holds (they can't be locked here), and those
-- that it would get by now, because such a transaction has just ended. All others refuse.
CREATE FUNCTION dramaturg.held_rows(claims json, moment timestamptz DEFAULT NULL) RETURNS SETOF uuid
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  clock   timestamptz := coalesce(moment, clock_timestamp());
  limited boolean := to_regclass('dramaturg.limited') IS NOT NULL;
BEGIN
  RETURN QUERY
  WITH asked AS (
    SELECT * FROM json_to_recordset(claims) AS c(id uuid, lease_id uuid) ORDER BY id
  ), refusing AS (
    SELECT a.id
    FROM asked a CROSS JOIN LATERAL (
      SELECT
      FROM dramaturg.job j
      WHERE j.id = a.id AND j.lease_id IS DISTINCT FROM a.lease_id AND NOT EXISTS (
        SELECT FROM dramaturg.admitted r
        WHERE r.id = j.id AND coalesce(r.state, '') = 'queued' AND r.run_at <= clock
          AND a.lease_id IS DISTINCT FROM r.ended_lease AND a.lease_id IS DISTINCT FROM r.finish_token
          AND (
            NOT limited
            OR dramaturg.within(r.domain, r.owner, r.queue, r.job_type, (SELECT dramaturg.bounds(clock)))
          )
      )
      FOR SHARE OF j SKIP LOCKED
    ) j
  )
  SELECT a.id FROM asked a JOIN dramaturg.job j ON j.id = a.id WHERE a.id NOT IN (SELECT r.id FROM refusing r);
END
$$;

-- renewals: an array of {id, lease_id, attempt, seconds, percent, message, stopping}, no id twice. Answers the held ones
-- and whether a cancel stands. A row that is locked counts by what is committed of it.
CREATE FUNCTION dramaturg.renew_rows(renewals json, moment timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, cancelled boolean)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  clock timestamptz := coalesce(moment, clock_timestamp());
BEGIN
  RETURN QUERY
  WITH asked AS (
    SELECT * FROM json_to_recordset(renewals) AS r(
      id uuid, lease_id uuid, attempt integer, seconds double precision, percent smallint, message text, stopping boolean
    )
    ORDER BY id
  ), locked AS (
    SELECT a.*
    FROM asked a CROSS JOIN LATERAL (
      SELECT
      FROM dramaturg.job j
      WHERE j.id = a.id AND j.lease_id = a.lease_id AND j.attempt = a.attempt AND j.state = 'processing'
      FOR NO KEY UPDATE SKIP LOCKED
    ) j
    WHERE a.seconds IS NOT NULL OR a.percent IS NOT NULL OR a.stopping
  ), renewed AS (
    UPDATE dramaturg.job j SET
      leased_until = greatest(j.leased_until, dramaturg.later(clock, l.seconds)),
      progress_percent = greatest(j.progress_percent, l.percent),
      progress_message = CASE
        WHEN l.percent >= coalesce(j.progress_percent, 0) THEN l.message ELSE j.progress_message
      END,
      revision = j.revision + (l.stopping AND NOT j.stopping)::integer,
      updated_at = CASE WHEN l.stopping AND NOT j.stopping THEN clock ELSE j.updated_at END,
      stopping = j.stopping OR l.stopping
    FROM locked l
    WHERE j.id = l.id
    RETURNING j.id, j.cancel_requested_at IS NOT NULL AS cancelled
  )
  SELECT a.id, coalesce(r.cancelled, j.cancel_requested_at IS NOT NULL)
  FROM asked a
  LEFT JOIN renewed r ON r.id = a.id
  LEFT JOIN dramaturg.job j
    ON j.id = a.id AND j.lease_id = a.lease_id AND j.attempt = a.attempt AND j.state = 'processing'
  WHERE r.id IS NOT NULL OR j.id IS NOT NULL;
END
$$;

-- changes: an array as store/wire.py makes it, no id twice; entries: null, or an array of {job_id, kind, attempt, code,
-- detail} of which those are kept whose row was written. Answers the rows that were written, and the SQLSTATE where the
-- history was not. json_populate_record reads each `set` once; asking for its 29 columns one by one costs the same, and
-- jsonb costs 3 us a row more and forgets how numbers were spelled.
CREATE FUNCTION dramaturg.swap_rows(
  changes json, entries json DEFAULT NULL, moment timestamptz DEFAULT NULL, OUT written uuid[], OUT unrecorded text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  clock timestamptz := coalesce(moment, clock_timestamp());
  leaving uuid[];
BEGIN
  WITH asked AS (
    SELECT * FROM json_to_recordset(changes) AS c(
      id uuid, revision bigint, lapsed boolean, delete boolean, set json, stamps text[], run_in double precision,
      run_at timestamptz, earliest boolean
    )
    ORDER BY id
  ), locked AS (
    SELECT a.id, a.delete, a.stamps, a.earliest, coalesce(a.run_at, dramaturg.later(clock, a.run_in)) AS own, j.new
    FROM asked a CROSS JOIN LATERAL (
      SELECT CASE WHEN a.delete IS NOT TRUE THEN json_populate_record(o, a.set) END AS new
      FROM dramaturg.job o
      WHERE o.id = a.id AND o.revision = a.revision AND (a.lapsed IS NOT TRUE OR o.leased_until < clock)
      FOR NO KEY UPDATE SKIP LOCKED
    ) j
  ), changed AS (
    UPDATE dramaturg.job j SET
      owner = (l.new).owner,
      priority = (l.new).priority,
      payload = (l.new).payload,
      run_at = CASE
        WHEN l.own IS NULL THEN j.run_at
        WHEN l.earliest THEN least(j.run_at, l.own)
        ELSE l.own
      END,
      generation = (l.new).generation,
      revision = j.revision + 1,
      state = (l.new).state,
      retries = (l.new).retries,
      max_retries = (l.new).max_retries,
      checkpoint = (l.new).checkpoint,
      checkpoint_generation = (l.new).checkpoint_generation,
      due_at = (l.new).due_at,
      held_at = CASE WHEN 'held_at' = ANY (l.stamps) THEN clock ELSE (l.new).held_at END,
      last_error = (l.new).last_error,
      failure = (l.new).failure,
      failure_code = (l.new).failure_code,
      failure_streak = (l.new).failure_streak,
      lease_id = (l.new).lease_id,
      ended_lease = (l.new).ended_lease,
      attempt = (l.new).attempt,
      leased_until = (l.new).leased_until,
      worker = (l.new).worker,
      stopping = (l.new).stopping,
      cancel_requested_at = CASE
        WHEN 'cancel_requested_at' = ANY (l.stamps) THEN clock ELSE (l.new).cancel_requested_at
      END,
      progress_percent = (l.new).progress_percent,
      progress_message = (l.new).progress_message,
      result = (l.new).result,
      finish_token = (l.new).finish_token,
      request_id = (l.new).request_id,
      trace = (l.new).trace,
      started_at = CASE WHEN 'started_at' = ANY (l.stamps) THEN clock ELSE (l.new).started_at END,
      finished_at = CASE WHEN 'finished_at' = ANY (l.stamps) THEN clock ELSE (l.new).finished_at END,
      updated_at = clock
    FROM locked l
    WHERE j.id = l.id AND l.delete IS NOT TRUE
    RETURNING j.id
  )
  SELECT array(SELECT c.id FROM changed c), array(SELECT l.id FROM locked l WHERE l.delete)
  INTO written, leaving;

  IF entries IS NOT NULL THEN
    BEGIN
      INSERT INTO dramaturg.history (job_id, at, kind, attempt, code, detail)
      SELECT e.job_id, clock, e.kind, e.attempt, e.code, coalesce(e.detail, '{}')
      FROM json_to_recordset(entries) AS e(job_id uuid, kind text, attempt integer, code text, detail json)
      WHERE e.job_id = ANY (written);
      -- The newest fifty of each are kept (store/job.py).
      DELETE FROM dramaturg.history h
      USING (
        SELECT w.id, (
          SELECT k.id FROM dramaturg.history k WHERE k.job_id = w.id ORDER BY k.id DESC OFFSET 50 LIMIT 1
        ) AS last
        FROM unnest(written) AS w(id)
      ) full_ones
      WHERE h.job_id = full_ones.id AND h.id <= full_ones.last;
    EXCEPTION WHEN OTHERS THEN
      unrecorded := SQLSTATE;
    END;
  END IF;

  IF leaving <> '{}' THEN
    DELETE FROM dramaturg.job j WHERE j.id = ANY (leaving);
    written := written || leaving;
  END IF;
END
$$;
