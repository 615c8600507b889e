-- Pruned rows that are kept. A generation never comes again, so (id, generation) names one life of one job.
CREATE TABLE dramaturg.archive (
  id           uuid NOT NULL,
  generation   bigint NOT NULL,
  domain       dramaturg.lane_name NOT NULL,
  queue        dramaturg.lane_name NOT NULL,
  job_type     dramaturg.lane_name NOT NULL,
  key          dramaturg.resource_key,
  job          json NOT NULL,
  payload_gzip bytea,
  result_gzip  bytea,
  archived_at  timestamptz NOT NULL,
  PRIMARY KEY (id, generation)
);
