-- Lifecycle events and attachments. The triggers that write events are made by `Store.arm` and exist only while somebody
-- wants events or has set an SLA. There is one writer, and AUTOINCREMENT goes on from what was committed last: positions
-- are in the order of commits, without gaps.
CREATE TABLE dramaturg_outbox (
  position   INTEGER PRIMARY KEY AUTOINCREMENT,
  name       TEXT NOT NULL,
  at         INTEGER NOT NULL,
  job_id     TEXT NOT NULL,
  domain     TEXT NOT NULL,
  queue      TEXT NOT NULL,
  job_type   TEXT NOT NULL,
  key        TEXT,
  owner      TEXT,
  state      TEXT NOT NULL,
  attempt    INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  revision   INTEGER NOT NULL,
  run_at     INTEGER NOT NULL,
  code       TEXT,
  took       INTEGER, -- microseconds
  allowed    REAL,    -- seconds
  request_id TEXT,
  trace      TEXT
) STRICT;

CREATE TABLE dramaturg_attachment (
  job_id     TEXT NOT NULL,
  number     INTEGER NOT NULL,
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  media_type TEXT NOT NULL,
  data       BLOB NOT NULL,
  at         INTEGER NOT NULL,
  PRIMARY KEY (job_id, number),
  CONSTRAINT dramaturg_attachment_kind CHECK (kind = 'log' OR kind = 'file')
) STRICT;

-- A deleted job takes its attachments along, too.
DROP TRIGGER dramaturg_job_history;
CREATE TRIGGER dramaturg_job_history AFTER DELETE ON dramaturg_job BEGIN
  DELETE FROM dramaturg_history WHERE job_id = old.id;
  DELETE FROM dramaturg_attachment WHERE job_id = old.id;
END;
