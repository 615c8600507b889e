-- Waking: one upsert, which Python reaches by wake_rows() and everybody else by wake().

CREATE TYPE dramaturg.woken AS (
  id         uuid,
  state      text,
  generation bigint,
  run_at     timestamptz,
  created    boolean,
  repeated   boolean,
  due        boolean
);

-- moment + seconds; what lies beyond the year 9999 is no time at all, as in Python.
CREATE FUNCTION dramaturg.later(moment timestamptz, seconds double precision) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
  WHEN seconds IS NULL THEN NULL -- least() below would pass over it
  WHEN moment + make_interval(secs => least(seconds, 4e11)) >= timestamptz '10000-01-01 00:00:00+00' THEN 'infinity'
  ELSE moment + make_interval(secs => least(seconds, 4e11))
END;

-- The id of a job with a key, as store/identity.py derives it. plpgsql takes 3 us, a SQL function 12.
CREATE FUNCTION dramaturg.job_id(domain text, queue text, job_type text, key text) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  raw bytea := sha256(convert_to(domain || E'\x1f' || queue || E'\x1f' || job_type || E'\x1f' || key, 'UTF8'));
BEGIN
  raw := set_byte(substring(raw FROM 1 FOR 16), 6, (get_byte(raw, 6) & 15) | 128);
  RETURN encode(set_byte(raw, 8, (get_byte(raw, 8) & 63) | 128), 'hex')::uuid;
END
$$;

-- The id of a job without one: a uuid7, made of the time and a random uuid4.
CREATE FUNCTION dramaturg.new_id() RETURNS uuid
LANGUAGE plpgsql VOLATILE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  stamp bytea := substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3);
  raw   bytea := stamp || substring(uuid_send(gen_random_uuid()) FROM 7);
BEGIN
  RETURN encode(set_byte(raw, 6, (get_byte(raw, 6) & 15) | 112), 'hex')::uuid;
END
$$;

-- Keeps two rows of one identity apart: the primary key does, where the id is the derived one. A unique index on the four
-- columns would do that as well, but then of twenty wakes that race for one key some fail (23505): ON CONFLICT watches
-- one index, and the other raises. A CHECK would derive the id again at every update.
CREATE FUNCTION dramaturg.check_identity() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF NEW.id <> dramaturg.job_id(NEW.domain, NEW.queue, NEW.job_type, NEW.key) THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', CONSTRAINT = 'job_identity',
      MESSAGE = 'the id does not follow from domain, queue, job type and key: take dramaturg.job_id(...)';
  END IF;
  RETURN NEW;
END
$$;

CREATE TRIGGER job_identity BEFORE INSERT OR UPDATE OF id, domain, queue, job_type, key ON dramaturg.job
  FOR EACH ROW WHEN (NEW.key IS NOT NULL) EXECUTE FUNCTION dramaturg.check_identity();

-- The set-based wake. wakes: an array of objects with the fields of store/events.py's Wake, no id twice; answers in any
-- order. A lock that somebody else's open transaction holds is waited for, but not for ever (55P03). `once` locks the
-- original without writing it, so that it can be told here and now: it can't vanish in between.
CREATE FUNCTION dramaturg.wake_rows(wakes json, moment timestamptz DEFAULT NULL, notify boolean DEFAULT true)
RETURNS SETOF dramaturg.woken
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  clock timestamptz := coalesce(moment, clock_timestamp());
  told dramaturg.woken[];
  rung text[];
BEGIN
  IF to_regclass('dramaturg.limited') IS NOT NULL THEN
    PERFORM dramaturg.admit_wakes(wakes, clock);
  END IF;
  WITH asked AS (
    SELECT w.*, dramaturg.later(coalesce(w.run_at, clock), coalesce(w.delay, 0)) AS first_run
    FROM json_to_recordset(wakes) AS w(
      id uuid, domain text, queue text, job_type text, key text, payload json, owner text, priority smallint,
      run_at timestamptz, delay double precision, once boolean, max_retries smallint, request_id text, trace text
    )
  ), written AS (
    INSERT INTO dramaturg.job AS job (
      id, domain, queue, job_type, key, owner, priority, payload, run_at, generation, revision, state, retries,
      max_retries, failure_streak, attempt, stopping, request_id, trace, created_at, updated_at
    )
    SELECT
      a.id, a.domain, a.queue, a.job_type, a.key, a.owner, a.priority, coalesce(a.payload, 'null'), a.first_run,
      (extract(epoch FROM clock) * 1000000)::bigint, 1, 'queued', 0,
      a.max_retries, 0, 0, false, a.request_id, a.trace, clock, clock
    FROM asked a
    ORDER BY a.id
    ON CONFLICT (id) DO UPDATE SET
      generation = job.generation + 1,
      revision = job.revision + 1,
      payload = excluded.payload,
      owner = coalesce(job.owner, excluded.owner),
      max_retries = excluded.max_retries,
      request_id = excluded.request_id,
      trace = excluded.trace,
      updated_at = clock,
      priority = CASE WHEN job.finished_at IS NULL THEN least(job.priority, excluded.priority) ELSE excluded.priority END,
      run_at = CASE
        WHEN job.state = 'quarantined' THEN job.run_at
        WHEN job.finished_at IS NULL THEN least(job.run_at, excluded.run_at)
        ELSE excluded.run_at
      END,
      cancel_requested_at = NULL,
      state = CASE WHEN job.finished_at IS NULL THEN job.state ELSE 'queued' END,
      finished_at = NULL,
      result = CASE WHEN job.finished_at IS NULL THEN job.result END,
      retries = CASE WHEN job.finished_at IS NULL THEN job.retries ELSE 0 END,
      last_error = CASE WHEN job.finished_at IS NULL THEN job.last_error END,
      failure = CASE WHEN job.finished_at IS NULL THEN job.failure END,
      failure_code = CASE WHEN job.finished_at IS NULL THEN job.failure_code END,
      failure_streak = CASE WHEN job.finished_at IS NULL THEN job.failure_streak ELSE 0 END
    WHERE job.id NOT IN (SELECT a.id FROM asked a WHERE a.once)
    RETURNING job.id, job.queue, job.state, job.generation, job.run_at, job.revision
  )
  SELECT
    array_agg(ROW(
      w.id, w.state, w.generation, w.run_at, w.revision = 1, false, w.state = 'queued' AND w.run_at <= clock
    )::dramaturg.woken),
    array_agg(DISTINCT w.queue::text) FILTER (WHERE notify AND w.state = 'queued' AND w.run_at <= clock + interval '1 second')
  INTO told, rung
  FROM written w;

  IF rung IS NOT NULL THEN
    PERFORM pg_notify('dramaturg_wake', r) FROM unnest(rung) r;
  END IF;
  RETURN QUERY SELECT t.* FROM unnest(told) t;
  IF coalesce(cardinality(told), 0) < json_array_length(wakes) THEN
    RETURN QUERY
    SELECT job.id, job.state, job.generation, job.run_at, false, true, job.state = 'queued' AND job.run_at <= clock
    FROM json_to_recordset(wakes) AS a(id uuid, once boolean)
    JOIN dramaturg.job ON job.id = a.id
    WHERE a.once AND job.id NOT IN (SELECT t.id FROM unnest(told) t);
  END IF;
END
$$;

-- The same for one job without a key, of which no row is there yet: a fourth of the time. Answers its generation, its
-- run_at in microseconds since 1970 (null: parked) and 1 if it is due; or null, having done nothing, where wake_rows()
-- must judge: the row is there after all, or there are limits.
CREATE FUNCTION dramaturg.wake_new(
  id uuid, domain text, queue text, job_type text, payload json, owner text, priority smallint, run_at timestamptz,
  delay double precision, max_retries smallint, request_id text, trace text, moment timestamptz, notify boolean
) RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
AS $$
#variable_conflict use_variable
DECLARE
  clock timestamptz := coalesce(moment, clock_timestamp());
  first_run timestamptz := dramaturg.later(coalesce(run_at, clock), coalesce(delay, 0));
  version bigint := (extract(epoch FROM clock) * 1000000)::bigint;
BEGIN
  IF to_regclass('dramaturg.limited') IS NOT NULL THEN
    RETURN NULL;
  END IF;
  INSERT INTO dramaturg.job (
    id, domain, queue, job_type, owner, priority, payload, run_at, generation, revision, state, retries,
    max_retries, failure_streak, attempt, stopping, request_id, trace, created_at, updated_at
  ) VALUES (
    id, domain, queue, job_type, owner, priority, payload, first_run, version, 1, 'queued', 0,
    max_retries, 0, 0, false, request_id, trace, clock, clock
  ) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF notify AND first_run <= clock + interval '1 second' THEN
    PERFORM pg_notify('dramaturg_wake', queue);
  END IF;
  RETURN ARRAY[
    version, CASE WHEN first_run < 'infinity' THEN (extract(epoch FROM first_run) * 1000000)::bigint END, (first_run <= clock)::integer
  ];
END
$$;

-- Raises where a text can't be a name; the rules are those of store/identity.py.
CREATE FUNCTION dramaturg.check_name(field text, value text, longest integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  fault text;
BEGIN
  IF value IS NULL THEN
    RETURN;
  END IF;
  fault := CASE
    WHEN btrim(value, E' \t\n\r\f\u000b\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000') = ''
      THEN 'is empty: give it at least one visible character'
    WHEN char_length(value) > longest
      THEN format('has %s characters; %s are allowed', char_length(value), longest)
    WHEN value ~ '[\u0001-\u001f\u007f-\u009f]'
      THEN 'holds a control character: remove it'
    WHEN value IS NOT NFC NORMALIZED
      THEN 'is not in Unicode''s normal form NFC: two spellings would be two jobs; normalize() it'
  END;
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'DG001', MESSAGE = field || ' ' || fault;
  END IF;
END
$$;

-- Raises where a payload breaks the rules of store/payloads.py. jsonb spells 1e300 as a whole number of 301 digits, so
-- every number beyond 64 bits is refused here.
CREATE FUNCTION dramaturg.check_payload(payload jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  fault text := CASE
    WHEN payload IS NULL
      THEN 'is NULL: leave it out, or give JSON'
    WHEN octet_length(payload::text) > 1048576
      THEN 'has more than 1048576 bytes: store the data elsewhere and pass its id'
    WHEN jsonb_path_exists(payload, 'strict $.**{64} ? (@.type() == "array" || @.type() == "object")')
      THEN 'is nested more than 64 levels deep'
    WHEN jsonb_path_exists(payload, 'strict $.** ? (@.type() == "number")
        ? (@ >= 9223372036854775808 || @ < -9223372036854775808)')
      THEN 'holds a number beyond 64 bits: pass it as a string'
  END;
BEGIN
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'DG001', MESSAGE = 'payload ' || fault;
  END IF;
END
$$;

-- A wake from any language, as part of the transaction that it is called in:
--   SELECT dramaturg.wake('invoice.send', key => '7', payload => '{"invoice_id": 7}');
-- What is left out comes from the type's policy. Refusals have SQLSTATE DG001. The caller needs the rights of the role
-- dramaturg_wake (or `SELECT dramaturg.let_in('role', 'wake')`), and a scope, see 007.
CREATE FUNCTION dramaturg.wake(
  job_type    text,
  key         text        DEFAULT NULL,
  payload     jsonb       DEFAULT '{}',
  run_at      timestamptz DEFAULT NULL,
  delay       interval    DEFAULT '0',
  queue       text        DEFAULT NULL,
  domain      text        DEFAULT 'default',
  owner       text        DEFAULT NULL,
  priority    integer     DEFAULT NULL,
  once        boolean     DEFAULT false,
  max_retries integer     DEFAULT NULL,
  request_id  text        DEFAULT NULL,
  trace       text        DEFAULT NULL,
  now         timestamptz DEFAULT NULL
) RETURNS dramaturg.woken
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
  clock   timestamptz := coalesce(wake.now, clock_timestamp());
  policy  json := (SELECT d.body FROM dramaturg.document d WHERE d.kind = 'policy' AND d.key = wake.job_type);
  lane    text := coalesce(queue, policy ->> 'queue', 'default');
  urgency integer := coalesce(priority, (policy ->> 'priority')::integer, 5);
  most    integer := coalesce(max_retries, (policy ->> 'max_retries')::integer);
  fault   text;
  told    dramaturg.woken;
  start   timestamptz;
  version bigint;
BEGIN
  IF key IS NULL AND policy ->> 'periodic' IS NOT NULL THEN
    key := job_type; -- a schedule has one row, whoever wakes it
  END IF;
  PERFORM
    dramaturg.check_name('job type', job_type, 128), dramaturg.check_name('queue', lane, 128),
    dramaturg.check_name('domain', domain, 128), dramaturg.check_name('key', key, 512),
    dramaturg.check_name('owner', owner, 256), dramaturg.check_name('request id', request_id, 256),
    dramaturg.check_payload(payload);
  fault := CASE
    WHEN job_type IS NULL OR domain IS NULL
      THEN 'job type and domain must not be NULL'
    WHEN urgency NOT BETWEEN 1 AND 10
      THEN 'priority must be a whole number from 1 to 10; the lower goes first'
    WHEN most NOT BETWEEN 0 AND 100
      THEN 'max_retries must be a whole number from 0 to 100, or left out for the type''s own'
    WHEN delay < interval '0' OR run_at = '-infinity'
      THEN 'delay must not be negative, nor run_at minus infinity: leave both out for a run at once'
    WHEN lane = 'scheduler'
      THEN 'the queue scheduler is the scheduler''s own: choose another name'
    WHEN key IS NULL AND policy ->> 'key' IS NOT NULL
      THEN 'jobs of this type have a key: pass the one that the payload stands for'
    WHEN once AND key IS NULL
      THEN 'once wants a key, by which the job can be found again'
    WHEN once AND policy ->> 'keep_finished' = 'false'
      THEN 'once can''t work for a job type that keeps no finished rows: keep them, or wake without once'
  END;
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'DG001', MESSAGE = fault;
  END IF;
  IF row_security_active('dramaturg.job') AND NOT coalesce(
    current_setting('app.domain_allowlist', true) IN ('*', domain) OR domain = ANY (dramaturg.scope()), false
  ) THEN
    RAISE EXCEPTION USING ERRCODE = 'DG003', MESSAGE =
      'this transaction may not wake jobs of that domain: name it by set_config(''app.domain_allowlist'', ..., true)';
  END IF;
  start := dramaturg.later(coalesce(run_at, clock) + coalesce(delay, '0'), 0);
  IF key IS NULL THEN
    told.id := dramaturg.new_id();
    version := (dramaturg.wake_new(
      told.id, domain, lane, job_type, payload::json, owner, urgency::smallint, start, 0, most::smallint, request_id,
      trace, clock, true))[1];
    IF version IS NOT NULL THEN
      RETURN (told.id, 'queued', version, start, true, false, start <= clock)::dramaturg.woken;
    END IF;
  END IF;
  SELECT w.* INTO told
  FROM dramaturg.wake_rows(
    json_build_array(json_build_object(
      'id', coalesce(told.id, dramaturg.job_id(domain, lane, job_type, key)),
      'domain', domain, 'queue', lane, 'job_type', job_type, 'key', key, 'payload', payload, 'owner', owner,
      'priority', urgency, 'run_at', start, 'delay', 0,
      'once', coalesce(once, false), 'max_retries', most, 'request_id', request_id, 'trace', trace
    )), clock) w;
  RETURN told;
END
$$;
