-- Types, tables, indexes and the one predicate of what may run. What writes them stands in 002 and 003.

-- Rules for a text stand in a domain: those are checked when a value comes in, a table's CHECKs on every update of the
-- row. Collation "C" orders as every other store does, and compares fastest. The blanks are those that Python knows.
CREATE DOMAIN dramaturg.lane_name AS text COLLATE "C" CONSTRAINT lane_name CHECK (
  char_length(VALUE) BETWEEN 1 AND 128 AND VALUE !~ '[\u0001-\u001f\u007f-\u009f]'
  AND btrim(VALUE, E' \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000') <> ''
);
CREATE DOMAIN dramaturg.resource_key AS text COLLATE "C" CONSTRAINT resource_key CHECK (
  char_length(VALUE) BETWEEN 1 AND 512 AND VALUE !~ '[\u0001-\u001f\u007f-\u009f]'
  AND btrim(VALUE, E' \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000') <> ''
);
CREATE DOMAIN dramaturg.reference AS text COLLATE "C" CONSTRAINT reference CHECK (
  char_length(VALUE) BETWEEN 1 AND 256 AND VALUE !~ '[\u0001-\u001f\u007f-\u009f]'
);

-- json and not jsonb: it gives back what it was given (the order of keys, 1e22, -0.0), and costs less to write.
CREATE DOMAIN dramaturg.json_text AS json CONSTRAINT json_text CHECK (octet_length(VALUE::text) <= 16777216);

-- What no job can be; which row may become which is for store/transitions.py. One function, since every statement that
-- writes reads the expression of each CHECK anew from its text: nine of them took three tenths of the server's CPU for one wake.
-- Without a search_path of its own, which would take longer than the rest: all types are those of pg_catalog's operators.
CREATE FUNCTION dramaturg.is_whole(
  state text, priority smallint, max_retries smallint, percent smallint, generation bigint, revision bigint,
  attempt integer, retries integer, streak integer, finished boolean, held boolean, leased boolean, lasting boolean,
  cancel boolean
) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  fault text;
BEGIN
  IF priority BETWEEN 1 AND 10
    AND (max_retries IS NULL OR max_retries BETWEEN 0 AND 100)
    AND (percent IS NULL OR percent BETWEEN 0 AND 100)
    AND least(generation, revision - 1, attempt, retries, streak) >= 0
    AND (CASE state
      WHEN 'queued' THEN NOT (finished OR held OR leased OR lasting OR cancel)
      WHEN 'processing' THEN leased AND lasting AND NOT (finished OR held)
      WHEN 'completed' THEN finished AND NOT (held OR leased OR lasting)
      WHEN 'failed' THEN finished AND NOT (held OR leased OR lasting)
      WHEN 'cancelled' THEN finished AND NOT (held OR leased OR lasting)
      WHEN 'quarantined' THEN held AND NOT (finished OR leased OR lasting OR cancel)
      ELSE false
    END)
  THEN
    RETURN true;
  END IF;
  fault := CASE
    WHEN NOT priority BETWEEN 1 AND 10 THEN 'job_priority'
    WHEN NOT max_retries BETWEEN 0 AND 100 THEN 'job_max_retries'
    WHEN NOT percent BETWEEN 0 AND 100 THEN 'job_progress'
    WHEN least(generation, revision - 1, attempt, retries, streak) < 0 THEN 'job_counters'
    WHEN state NOT IN ('queued', 'processing', 'completed', 'failed', 'cancelled', 'quarantined') THEN 'job_state'
    WHEN finished <> (state IN ('completed', 'failed', 'cancelled')) THEN 'job_finished'
    WHEN held <> (state = 'quarantined') THEN 'job_held'
    WHEN leased <> (state = 'processing') OR lasting <> (state = 'processing') THEN 'job_leased'
    ELSE 'job_cancel'
  END;
  RAISE EXCEPTION USING ERRCODE = 'check_violation', CONSTRAINT = fault, SCHEMA = 'dramaturg', TABLE = 'job',
    MESSAGE = format('a row of dramaturg.job violates %s', fault);
END
$$;

-- The columns in the order of store/job.py.
CREATE TABLE dramaturg.job (
  id                    uuid NOT NULL PRIMARY KEY,
  domain                dramaturg.lane_name NOT NULL,
  queue                 dramaturg.lane_name NOT NULL,
  job_type              dramaturg.lane_name NOT NULL,
  key                   dramaturg.resource_key,
  owner                 dramaturg.reference,
  priority              smallint NOT NULL,
  payload               dramaturg.json_text NOT NULL,
  run_at                timestamptz NOT NULL,
  generation            bigint NOT NULL,
  revision              bigint NOT NULL,
  state                 text NOT NULL COLLATE "C",
  retries               integer NOT NULL,
  max_retries           smallint,
  checkpoint            dramaturg.json_text,
  checkpoint_generation bigint,
  due_at                timestamptz,
  held_at               timestamptz,
  last_error            text,
  failure               dramaturg.json_text,
  failure_code          text COLLATE "C",
  failure_streak        integer NOT NULL,
  lease_id              uuid,
  ended_lease           uuid,
  attempt               integer NOT NULL,
  leased_until          timestamptz,
  worker                dramaturg.reference,
  stopping              boolean NOT NULL,
  cancel_requested_at   timestamptz,
  progress_percent      smallint,
  progress_message      text,
  result                dramaturg.json_text,
  finish_token          uuid,
  request_id            dramaturg.reference,
  trace                 text,
  created_at            timestamptz NOT NULL,
  started_at            timestamptz,
  finished_at           timestamptz,
  updated_at            timestamptz NOT NULL,

  CONSTRAINT job_whole CHECK (dramaturg.is_whole(
    state, priority, max_retries, progress_percent, generation, revision, attempt, retries, failure_streak,
    finished_at IS NOT NULL, held_at IS NOT NULL, lease_id IS NOT NULL, leased_until IS NOT NULL,
    cancel_requested_at IS NOT NULL))
) WITH (
  -- Room on each page for the next version of its rows, so that renewals and progress stay where they are (HOT).
  fillfactor = 75,
  -- A queue is mostly dead rows: clean up early and often, not at the usual fifth of the table.
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 500,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_vacuum_cost_delay = 1,
  autovacuum_analyze_scale_factor = 0.02,
  autovacuum_analyze_threshold = 500
);

-- Every claim and finish writes into each index that its row is in, so there are few, and those of the states are
-- partial. No index holds leased_until, updated_at or a column of progress: a renewal must not touch any.

-- What `due` walks: one lane for each queue, type and priority, in the order of the offer. With domain in it, rows that
-- have been waiting for a while are judged without a look at the table.
CREATE INDEX job_due ON dramaturg.job (queue, job_type, priority, run_at, id) INCLUDE (domain) WHERE state = 'queued';

-- Running rows, among which the lapsed ones are sought: no more than the fleet has slots.
CREATE INDEX job_processing ON dramaturg.job (id) WHERE state = 'processing';

-- What failed and is looked for by people.
CREATE INDEX job_troubled ON dramaturg.job (id) WHERE state IN ('failed', 'quarantined');

-- What has ended, for those who prune.
CREATE INDEX job_finished ON dramaturg.job (finished_at, id) WHERE finished_at IS NOT NULL;

-- Not a foreign key: that asks for a lock on the job's row at every entry.
CREATE TABLE dramaturg.history (
  id      bigint GENERATED ALWAYS AS IDENTITY,
  job_id  uuid NOT NULL,
  at      timestamptz NOT NULL,
  kind    text NOT NULL,
  attempt integer NOT NULL,
  code    text,
  detail  json NOT NULL,
  PRIMARY KEY (job_id, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE dramaturg.document (
  kind       text NOT NULL COLLATE "C",
  key        text NOT NULL COLLATE "C",
  version    bigint NOT NULL,
  body       json NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (kind, key),
  CONSTRAINT document_name CHECK (char_length(kind) BETWEEN 1 AND 64 AND char_length(key) BETWEEN 1 AND 1024),
  CONSTRAINT document_version CHECK (version >= 1)
) WITH (fillfactor = 80);

-- holder is null once the term was given back; settled_at is when the spell that is running counts as settled.
CREATE TABLE dramaturg.term (
  name       text NOT NULL PRIMARY KEY COLLATE "C",
  holder     text,
  until      timestamptz NOT NULL,
  settled_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Rows that may run where they are queued and their run_at has come: the one predicate that `due` and claims share. IN
-- under IS TRUE (and NOT IN) is answered from a hash that a statement builds once; as joins these three cost a claim of
-- fifty 5 us more a row.
CREATE VIEW dramaturg.admitted AS
SELECT id, domain, queue, job_type, owner, priority, run_at, state, ended_lease, finish_token
FROM dramaturg.job
WHERE (job_type IN (SELECT d.key FROM dramaturg.document d WHERE d.kind = 'policy')) IS TRUE
  AND queue NOT IN (SELECT d.key FROM dramaturg.document d WHERE d.kind = 'queue' AND d.body ->> 'paused' = 'true')
  AND (queue || E'\x1f' || domain)
    NOT IN (SELECT d.key FROM dramaturg.document d WHERE d.kind = 'queue' AND d.body ->> 'paused' = 'true');

CREATE FUNCTION dramaturg.forget_history() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
BEGIN
  DELETE FROM dramaturg.history h USING gone WHERE h.job_id = gone.id;
  RETURN NULL;
EXCEPTION WHEN OTHERS THEN
  -- History harms nobody, not even where it can't be removed.
  RAISE WARNING 'the history of deleted jobs was left behind (%)', SQLSTATE;
  RETURN NULL;
END
$$;

CREATE TRIGGER job_deleted AFTER DELETE ON dramaturg.job
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION dramaturg.forget_history();
