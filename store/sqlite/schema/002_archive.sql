-- Pruned rows that are kept; what was compressed is text, "gzip64:" and then base64. A generation never comes again, so
-- (id, generation) names one life of one job.
CREATE TABLE dramaturg_archive (
  id           TEXT NOT NULL,
  generation   INTEGER NOT NULL,
  domain       TEXT NOT NULL,
  queue        TEXT NOT NULL,
  job_type     TEXT NOT NULL,
  key          TEXT,
  job          TEXT NOT NULL,
  payload_gzip TEXT,
  result_gzip  TEXT,
  archived_at  INTEGER NOT NULL,
  PRIMARY KEY (id, generation),
  CONSTRAINT dramaturg_archive_job CHECK (json_valid(job))
) STRICT, WITHOUT ROWID;
