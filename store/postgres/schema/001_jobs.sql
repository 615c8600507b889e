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

  CONSTRAINT job_state CHECK (
    state IN ('queued', 'processing', 'completed', 'failed', 'cancelled', 'quarantined')),
  CONSTRAINT job_priority CHECK (priority BETWEEN 1 AND 10),
  CONSTRAINT job_max_retries CHECK (max_retries BETWEEN 0 AND 100),
  CONSTRAINT job_progress CHECK (progress_percent BETWEEN 0 AND 100),
  CONSTRAINT job_counters CHECK (
    generation >= 0 AND revision >= 1 AND attempt >= 0 AND retries >= 0 AND failure_streak >= 0),
  CONSTRAINT job_finished CHECK ((finished_at IS NOT NULL) = (state IN ('completed', 'failed', 'cancelled'))),
  CONSTRAINT job_held CHECK ((held_at IS NOT NULL) = (state = 'quarantined')),
  CONSTRAINT job_leased CHECK (
    (lease_id IS NOT NULL) = (state = 'processing') AND (leased_until IS NOT NULL) = (state = 'processing')),
  CONSTRAINT job_cancel CHECK (cancel_requested_at IS NULL OR state NOT IN ('queued', 'quarantined'))
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
