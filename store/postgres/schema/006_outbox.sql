-- Lifecycle events and attachments. What writes events are triggers that are off until somebody asks for events or sets
-- an SLA (`Store.arm`): a trigger that is off costs nothing. They are proven equal to store/outbox.py.

-- An event arrives without a position, since ids of a sequence may be committed in another order than they were drawn.
-- Whoever reads first gives positions to what has been committed (`number_events`), in the order of arrival. So nothing
-- ever appears behind a position that was told, and nobody waits for an id that was rolled back. Of one job's events each
-- was committed before the next was written: the row's lock sees to it.
CREATE TABLE dramaturg.outbox (
  position   bigint NOT NULL PRIMARY KEY,
  name       text NOT NULL COLLATE "C",
  at         timestamptz NOT NULL,
  job_id     uuid NOT NULL,
  domain     text NOT NULL COLLATE "C",
  queue      text NOT NULL COLLATE "C",
  job_type   text NOT NULL COLLATE "C",
  key        text COLLATE "C",
  owner      text COLLATE "C",
  state      text NOT NULL COLLATE "C",
  attempt    integer NOT NULL,
  generation bigint NOT NULL,
  revision   bigint NOT NULL,
  run_at     timestamptz NOT NULL,
  code       text COLLATE "C",
  took       bigint,           -- microseconds
  allowed    double precision, -- seconds
  request_id text,
  trace      text
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);

CREATE TABLE dramaturg.outbox_arrival (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  LIKE dramaturg.outbox
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 1);
ALTER TABLE dramaturg.outbox_arrival ALTER position DROP NOT NULL;

-- One row: the last position that was given. It is the lock under which positions are given, too.
CREATE TABLE dramaturg.outbox_counter (last bigint NOT NULL);
INSERT INTO dramaturg.outbox_counter VALUES (0);

CREATE TABLE dramaturg.attachment (
  job_id     uuid NOT NULL,
  number     integer NOT NULL,
  kind       text NOT NULL COLLATE "C",
  name       text NOT NULL,
  media_type text NOT NULL,
  data       bytea NOT NULL,
  at         timestamptz NOT NULL,
  PRIMARY KEY (job_id, number),
  CONSTRAINT attachment_kind CHECK (kind IN ('log', 'file'))
);

-- By the rights of the tables' owner: a caller's own wake writes an event without a right on the outbox.
CREATE FUNCTION dramaturg.note_changes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- The verbs that make the changes have these off for their own joins; here old and new rows of a whole batch meet.
SET enable_hashjoin = on
SET enable_mergejoin = on
SET enable_seqscan = on
AS $$
#variable_conflict use_column
DECLARE
  wanted  boolean := EXISTS (
    SELECT FROM dramaturg.document d WHERE d.kind = 'outbox' AND d.key = 'events' AND d.body ->> 'on' = 'true');
  limited boolean := EXISTS (SELECT FROM dramaturg.document d WHERE d.kind = 'sla' AND d.body ->> 'removed' IS NULL);
  clock   timestamptz := clock_timestamp();
  told    dramaturg.outbox[];
BEGIN
  IF TG_OP = 'INSERT' THEN
    told := array(
      SELECT ROW(NULL, 'job.created', n.updated_at, n.id, n.domain, n.queue, n.job_type, n.key, n.owner, n.state,
        n.attempt, n.generation, n.revision, n.run_at, NULL, NULL, NULL, n.request_id, n.trace)::dramaturg.outbox
      FROM new_rows n);
  ELSIF TG_OP = 'UPDATE' THEN
    told := array(
      WITH named AS (
        SELECT n.*,
          CASE
            WHEN n.state <> o.state THEN CASE
              WHEN n.state = 'processing' THEN 'job.claimed'
              WHEN n.state <> 'queued' THEN 'job.' || n.state
              WHEN o.state <> 'processing' THEN 'job.requeued'
              WHEN n.retries > o.retries THEN 'job.retry_scheduled'
              WHEN n.finish_token IS DISTINCT FROM o.lease_id THEN 'job.released'
              WHEN n.run_at = 'infinity' THEN 'job.parked'
              ELSE 'job.rescheduled'
            END
            WHEN n.generation <> o.generation THEN
              CASE WHEN n.state = 'queued' AND n.run_at > o.run_at THEN 'job.rescheduled' ELSE 'job.woken' END
            WHEN n.state = 'processing' AND o.cancel_requested_at IS NULL AND n.cancel_requested_at IS NOT NULL
              THEN 'job.cancel_requested'
          END AS event,
          CASE
            WHEN n.state = o.state THEN NULL
            WHEN n.state = 'processing' THEN n.started_at - n.due_at
            WHEN o.state = 'processing' THEN n.updated_at - o.started_at
          END AS lasted
        FROM old_rows o JOIN new_rows n ON n.id = o.id
      ), timed AS (
        SELECT n.*, (extract(epoch FROM n.lasted) * 1000000)::bigint AS took,
          CASE WHEN n.event = 'job.claimed' THEN 'queue_latency' ELSE 'duration' END AS measure
        FROM named n WHERE n.event IS NOT NULL
      )
      SELECT ROW(NULL, v.event, t.updated_at, t.id, t.domain, t.queue, t.job_type, t.key, t.owner, t.state,
        t.attempt, t.generation, t.revision, t.run_at, v.code, t.took, v.allowed, t.request_id, t.trace
      )::dramaturg.outbox
      FROM timed t
      LEFT JOIN LATERAL (
        SELECT (d.body ->> t.measure)::double precision AS allowed
        FROM dramaturg.document d
        WHERE limited AND t.took IS NOT NULL
          AND d.kind = 'sla' AND d.body ->> 'removed' IS NULL
          AND d.key IN (t.job_type, t.job_type || E'\x1f' || t.domain)
        ORDER BY length(d.key) DESC LIMIT 1
      ) l ON true
      CROSS JOIN LATERAL (VALUES
        (1, t.event,
          CASE WHEN t.event IN ('job.failed', 'job.retry_scheduled', 'job.quarantined') THEN t.failure_code END,
          NULL::double precision),
        (2, 'job.sla_breached', t.measure, l.allowed)
      ) v(place, event, code, allowed)
      WHERE v.place = 1 OR t.took > l.allowed * 1000000
      ORDER BY t.id, v.place);
  ELSE
    told := array(
      WITH timed AS (
        SELECT o.*, o.state = 'processing' AS served,
          CASE WHEN o.state = 'processing' THEN (extract(epoch FROM clock - o.started_at) * 1000000)::bigint END AS took
        FROM old_rows o
      )
      SELECT ROW(NULL, v.event, clock, t.id, t.domain, t.queue, t.job_type, t.key, t.owner,
        CASE WHEN t.served THEN 'completed' ELSE t.state END,
        t.attempt, t.generation, t.revision, t.run_at, v.code, v.took, v.allowed, t.request_id, t.trace
      )::dramaturg.outbox
      FROM timed t
      LEFT JOIN LATERAL (
        SELECT (d.body ->> 'duration')::double precision AS allowed
        FROM dramaturg.document d
        WHERE limited AND t.took IS NOT NULL
          AND d.kind = 'sla' AND d.body ->> 'removed' IS NULL
          AND d.key IN (t.job_type, t.job_type || E'\x1f' || t.domain)
        ORDER BY length(d.key) DESC LIMIT 1
      ) l ON true
      CROSS JOIN LATERAL (VALUES
        (1, 'job.completed', NULL, t.took, NULL::double precision),
        (2, 'job.sla_breached', 'duration', t.took, l.allowed),
        (3, 'job.deleted', NULL, NULL, NULL)
      ) v(place, event, code, took, allowed)
      WHERE v.place = 3 OR (v.place = 1 AND t.served) OR (v.place = 2 AND t.took > l.allowed * 1000000)
      ORDER BY t.id, v.place);
  END IF;

  IF wanted AND told <> '{}' THEN
    INSERT INTO dramaturg.outbox_arrival (
      name, at, job_id, domain, queue, job_type, key, owner, state, attempt, generation, revision, run_at, code, took,
      allowed, request_id, trace)
    SELECT t.name, t.at, t.job_id, t.domain, t.queue, t.job_type, t.key, t.owner, t.state, t.attempt, t.generation,
      t.revision, t.run_at, t.code, t.took, t.allowed, t.request_id, t.trace
    FROM unnest(told) WITH ORDINALITY AS t(
      position, name, at, job_id, domain, queue, job_type, key, owner, state, attempt, generation, revision, run_at,
      code, took, allowed, request_id, trace, place)
    ORDER BY t.place;
  END IF;
  IF limited AND TG_OP = 'UPDATE' AND told <> '{}' THEN
    PERFORM dramaturg.note_breaches(told);
  END IF;
  RETURN NULL;
END
$$;

-- Breaches go into the history of their job as well, which harms nobody where it can't be written.
CREATE FUNCTION dramaturg.note_breaches(told dramaturg.outbox[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
  breached uuid[] := array(SELECT DISTINCT t.job_id FROM unnest(told) t WHERE t.name = 'job.sla_breached');
BEGIN
  IF breached = '{}' THEN
    RETURN;
  END IF;
  INSERT INTO dramaturg.history (job_id, at, kind, attempt, code, detail)
  SELECT t.job_id, t.at, 'sla_breached', t.attempt, t.code,
    json_build_object('seconds', t.took / 1000000.0::double precision, 'allowed', t.allowed)
  FROM unnest(told) t WHERE t.name = 'job.sla_breached';
  DELETE FROM dramaturg.history h
  USING (
    SELECT b.id, (
      SELECT k.id FROM dramaturg.history k WHERE k.job_id = b.id ORDER BY k.id DESC OFFSET 50 LIMIT 1
    ) AS last
    FROM unnest(breached) AS b(id)
  ) full_ones
  WHERE h.job_id = full_ones.id AND h.id <= full_ones.last;
EXCEPTION WHEN OTHERS THEN
  RAISE WARNING 'breaches of an SLA were not noted in the history (%)', SQLSTATE;
END
$$;

CREATE TRIGGER job_created_event AFTER INSERT ON dramaturg.job
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION dramaturg.note_changes();
CREATE TRIGGER job_changed_event AFTER UPDATE ON dramaturg.job
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION dramaturg.note_changes();
CREATE TRIGGER job_deleted_event AFTER DELETE ON dramaturg.job
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION dramaturg.note_changes();
ALTER TABLE dramaturg.job DISABLE TRIGGER job_created_event;
ALTER TABLE dramaturg.job DISABLE TRIGGER job_changed_event;
ALTER TABLE dramaturg.job DISABLE TRIGGER job_deleted_event;

-- Give positions to at most `most` of the events that have arrived; answers how many got one. The lock ends with the
-- transaction, so it works through a pooler; each statement here sees what the one before it waited for (and a
-- transaction that would not, REPEATABLE READ, is refused by the database: 40001).
CREATE FUNCTION dramaturg.number_events(most integer) RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
AS $$
DECLARE
  last_one bigint;
  given    integer;
BEGIN
  IF NOT EXISTS (SELECT FROM dramaturg.outbox_arrival) THEN
    RETURN 0;
  END IF;
  SELECT c.last INTO STRICT last_one FROM dramaturg.outbox_counter c FOR UPDATE;
  IF current_setting('synchronous_commit') = 'off' THEN
    -- A position that was told must not be lost by a crash, whatever else may be.
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  WITH taken AS (
    DELETE FROM dramaturg.outbox_arrival a
    WHERE a.id = ANY (array(SELECT b.id FROM dramaturg.outbox_arrival b ORDER BY b.id LIMIT most))
    RETURNING a.*
  )
  INSERT INTO dramaturg.outbox
  SELECT last_one + row_number() OVER (ORDER BY t.id), t.name, t.at, t.job_id, t.domain, t.queue, t.job_type, t.key,
    t.owner, t.state, t.attempt, t.generation, t.revision, t.run_at, t.code, t.took, t.allowed, t.request_id, t.trace
  FROM taken t;
  GET DIAGNOSTICS given = ROW_COUNT;
  UPDATE dramaturg.outbox_counter SET last = last_one + given;
  RETURN given;
END
$$;

-- Turn the triggers on where events are wanted or an SLA is set, else off; answers whether anything changed. Waits for
-- the transactions that write jobs, and they for it: not for long (55P03, and the caller tries again).
CREATE FUNCTION dramaturg.arm() RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $$
DECLARE
  wanted boolean;
  each   name;
  done   boolean := false;
BEGIN
  PERFORM pg_advisory_xact_lock(7240317565103285563); -- whoever comes second reads what the first has committed
  SELECT EXISTS (
    SELECT FROM dramaturg.document d
    WHERE (d.kind = 'sla' AND d.body ->> 'removed' IS NULL)
      OR (d.kind = 'outbox' AND d.key = 'events' AND d.body ->> 'on' = 'true')
  ) INTO wanted;
  FOR each IN
    SELECT t.tgname FROM pg_trigger t
    WHERE t.tgrelid = 'dramaturg.job'::regclass AND t.tgname LIKE 'job\_%\_event' AND (t.tgenabled <> 'D') <> wanted
    ORDER BY t.tgname
  LOOP
    EXECUTE format('ALTER TABLE dramaturg.job %s TRIGGER %I', CASE WHEN wanted THEN 'ENABLE' ELSE 'DISABLE' END, each);
    done := true;
  END LOOP;
  RETURN done;
END
$$;

-- items: an array of {kind, name, media_type, data (base64)}; caps: {files, bytes, logs} of one job; fence: null, or
-- {lease_id, attempt} of the run that writes. Answers the numbers that were given; null: there is no such row, or its
-- lease is another's. None: files are
-- beyond the caps, and nothing was written. Of log lines the newest are kept.
CREATE FUNCTION dramaturg.attach(job uuid, items json, caps json, fence json, moment timestamptz) RETURNS integer[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
AS $$
DECLARE
  clock  timestamptz := coalesce(moment, clock_timestamp());
  latest integer;
  files  bigint;
  size   bigint;
  given  integer[];
BEGIN
  PERFORM FROM dramaturg.job j
  WHERE j.id = attach.job AND (fence IS NULL OR (
    j.state = 'processing' AND j.lease_id = (fence ->> 'lease_id')::uuid AND j.attempt = (fence ->> 'attempt')::integer))
  FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT coalesce(max(a.number), 0), count(*) FILTER (WHERE a.kind = 'file'),
    coalesce(sum(octet_length(a.data)) FILTER (WHERE a.kind = 'file'), 0)
  INTO latest, files, size FROM dramaturg.attachment a WHERE a.job_id = attach.job;
  SELECT files + count(*), size + coalesce(sum(octet_length(decode(i.data, 'base64'))), 0) INTO files, size
  FROM json_to_recordset(items) AS i(kind text, data text) WHERE i.kind = 'file';
  IF files > (caps ->> 'files')::bigint OR size > (caps ->> 'bytes')::bigint THEN
    RETURN '{}';
  END IF;
  WITH made AS (
    INSERT INTO dramaturg.attachment
    SELECT attach.job, latest + i.place::integer, i.item ->> 'kind', i.item ->> 'name', i.item ->> 'media_type',
      decode(i.item ->> 'data', 'base64'), clock
    FROM json_array_elements(items) WITH ORDINALITY AS i(item, place)
    RETURNING attachment.number
  )
  SELECT array_agg(m.number ORDER BY m.number) INTO given FROM made m;
  DELETE FROM dramaturg.attachment a WHERE a.job_id = attach.job AND a.kind = 'log' AND a.number <= (
    SELECT b.number FROM dramaturg.attachment b WHERE b.job_id = attach.job AND b.kind = 'log'
    ORDER BY b.number DESC OFFSET (caps ->> 'logs')::integer LIMIT 1);
  RETURN given;
END
$$;

-- A deleted job takes its attachments along, too. Asked for once a statement: mostly there are none at all.
CREATE OR REPLACE FUNCTION dramaturg.forget_history() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
BEGIN
  DELETE FROM dramaturg.history h USING gone WHERE h.job_id = gone.id;
  IF EXISTS (SELECT FROM dramaturg.attachment) THEN
    DELETE FROM dramaturg.attachment a USING gone WHERE a.job_id = gone.id;
  END IF;
  RETURN NULL;
EXCEPTION WHEN OTHERS THEN
  -- History harms nobody, not even where it can't be removed.
  RAISE WARNING 'the history of deleted jobs was left behind (%)', SQLSTATE;
  RETURN NULL;
END
$$;
