-- All times are whole microseconds since 1970, and 253402300799999999 (clock.PARKED) is "at no time". JSON stays the
-- text that came in. The database refuses what no job can be; which row may become which is for store/transitions.py.

CREATE TABLE dramaturg_job (
  id                    TEXT NOT NULL PRIMARY KEY,
  domain                TEXT NOT NULL,
  queue                 TEXT NOT NULL,
  job_type              TEXT NOT NULL,
  key                   TEXT,
  owner                 TEXT,
  priority              INTEGER NOT NULL,
  payload               TEXT NOT NULL,
  run_at                INTEGER NOT NULL,
  generation            INTEGER NOT NULL,
  revision              INTEGER NOT NULL,
  state                 TEXT NOT NULL,
  retries               INTEGER NOT NULL,
  max_retries           INTEGER,
  checkpoint            TEXT,
  checkpoint_generation INTEGER,
  due_at                INTEGER,
  held_at               INTEGER,
  last_error            TEXT,
  failure               TEXT,
  failure_code          TEXT,
  failure_streak        INTEGER NOT NULL,
  lease_id              TEXT,
  ended_lease           TEXT,
  attempt               INTEGER NOT NULL,
  leased_until          INTEGER,
  worker                TEXT,
  stopping              INTEGER NOT NULL,
  cancel_requested_at   INTEGER,
  progress_percent      INTEGER,
  progress_message      TEXT,
  result                TEXT,
  finish_token          TEXT,
  request_id            TEXT,
  trace                 TEXT,
  created_at            INTEGER NOT NULL,
  started_at            INTEGER,
  finished_at           INTEGER,
  updated_at            INTEGER NOT NULL,

  -- The text of a CHECK counts: a list with IN is made into a table for every row that is written (19,000 rows a
  -- second against 28,000), so lists are spelled with OR. GLOB and length() stop at U+0000; instr() finds it.
  CONSTRAINT dramaturg_job_id CHECK (length(id) = 36),
  CONSTRAINT dramaturg_job_domain CHECK (length(domain) BETWEEN 1 AND 128),
  CONSTRAINT dramaturg_job_queue CHECK (length(queue) BETWEEN 1 AND 128),
  CONSTRAINT dramaturg_job_job_type CHECK (length(job_type) BETWEEN 1 AND 128),
  CONSTRAINT dramaturg_job_key CHECK (length(key) BETWEEN 1 AND 512),
  CONSTRAINT dramaturg_job_names CHECK (
    domain || queue || job_type || coalesce(key, '')
      NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
    AND instr(domain || queue || job_type || coalesce(key, ''), char(0)) = 0),
  CONSTRAINT dramaturg_job_owner CHECK (length(owner) BETWEEN 1 AND 256),
  CONSTRAINT dramaturg_job_worker CHECK (length(worker) BETWEEN 1 AND 256),
  CONSTRAINT dramaturg_job_request_id CHECK (length(request_id) BETWEEN 1 AND 256),
  CONSTRAINT dramaturg_job_priority CHECK (priority BETWEEN 1 AND 10),
  -- json_valid(NULL) is 0 on the older versions.
  CONSTRAINT dramaturg_job_payload CHECK (length(payload) <= 16777216 AND json_valid(payload)),
  CONSTRAINT dramaturg_job_checkpoint CHECK (
    checkpoint IS NULL OR (length(checkpoint) <= 16777216 AND json_valid(checkpoint))),
  CONSTRAINT dramaturg_job_result CHECK (result IS NULL OR (length(result) <= 16777216 AND json_valid(result))),
  CONSTRAINT dramaturg_job_failure CHECK (failure IS NULL OR json_valid(failure)),
  CONSTRAINT dramaturg_job_run_at CHECK (run_at <= 253402300799999999),
  CONSTRAINT dramaturg_job_counters CHECK (
    generation >= 0 AND revision >= 1 AND attempt >= 0 AND retries >= 0 AND failure_streak >= 0),
  CONSTRAINT dramaturg_job_max_retries CHECK (max_retries BETWEEN 0 AND 100),
  CONSTRAINT dramaturg_job_progress CHECK (progress_percent BETWEEN 0 AND 100),
  CONSTRAINT dramaturg_job_stopping CHECK (stopping = 0 OR stopping = 1),
  CONSTRAINT dramaturg_job_state CHECK (
    state = 'queued' OR state = 'processing' OR state = 'completed' OR state = 'failed' OR state = 'cancelled'
    OR state = 'quarantined'),
  CONSTRAINT dramaturg_job_finished CHECK (
    (finished_at IS NOT NULL) = (state = 'completed' OR state = 'failed' OR state = 'cancelled')),
  CONSTRAINT dramaturg_job_held CHECK ((held_at IS NOT NULL) = (state = 'quarantined')),
  CONSTRAINT dramaturg_job_leased CHECK (
    (lease_id IS NOT NULL) = (state = 'processing') AND (leased_until IS NOT NULL) = (state = 'processing')),
  CONSTRAINT dramaturg_job_cancel CHECK (
    cancel_requested_at IS NULL OR state = 'processing' OR state = 'completed' OR state = 'failed'
    OR state = 'cancelled')
) STRICT;

-- The id is derived from these four; this is for writers that derived it wrongly.
CREATE UNIQUE INDEX dramaturg_job_identity ON dramaturg_job (domain, queue, job_type, key) WHERE key IS NOT NULL;

-- What `due` walks: one lane for each queue and type, in the order of the offer. With domain and state it has all that
-- is asked of a row, so that passing a row costs no visit to the table.
CREATE INDEX dramaturg_job_lane ON dramaturg_job (queue, job_type, priority, run_at, id, domain, state)
  WHERE state = 'queued';

CREATE INDEX dramaturg_job_lease ON dramaturg_job (leased_until, id) WHERE state = 'processing';

CREATE INDEX dramaturg_job_ended ON dramaturg_job (finished_at, id) WHERE finished_at IS NOT NULL;

CREATE TABLE dramaturg_history (
  id      INTEGER PRIMARY KEY,
  job_id  TEXT NOT NULL,
  at      INTEGER NOT NULL,
  kind    TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  code    TEXT,
  detail  TEXT NOT NULL,
  CONSTRAINT dramaturg_history_detail CHECK (json_valid(detail))
) STRICT;

CREATE INDEX dramaturg_history_job ON dramaturg_history (job_id);

-- A trigger and not a foreign key: those are off on a connection that did not ask for them.
CREATE TRIGGER dramaturg_job_history AFTER DELETE ON dramaturg_job BEGIN
  DELETE FROM dramaturg_history WHERE job_id = old.id;
END;

CREATE TABLE dramaturg_document (
  kind       TEXT NOT NULL,
  key        TEXT NOT NULL,
  version    INTEGER NOT NULL,
  body       TEXT NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (kind, key),
  CONSTRAINT dramaturg_document_name CHECK (length(kind) BETWEEN 1 AND 64 AND length(key) BETWEEN 1 AND 1024),
  CONSTRAINT dramaturg_document_version CHECK (version >= 1),
  CONSTRAINT dramaturg_document_body CHECK (json_valid(body))
) STRICT, WITHOUT ROWID;

-- holder is NULL once the term was given back; settled_at is when the spell that is running counts as settled.
CREATE TABLE dramaturg_term (
  name       TEXT NOT NULL PRIMARY KEY,
  holder     TEXT,
  until      INTEGER NOT NULL,
  settled_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
