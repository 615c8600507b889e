-- Times are whole microseconds since 1970. The database refuses what no proposal can be; which state may become which
-- is for lifecycle.py.

-- One row for each incarnation of a repository; the one that has not ended is the repository of that name.
CREATE TABLE dramaturg_repository (
  id            TEXT NOT NULL PRIMARY KEY,
  domain        TEXT NOT NULL,
  name          TEXT NOT NULL,
  path          TEXT NOT NULL,
  incarnation   TEXT NOT NULL,
  registered_at INTEGER NOT NULL,
  ended         TEXT,
  ended_at      INTEGER,
  CONSTRAINT dramaturg_repository_id CHECK (length(id) = 36),
  CONSTRAINT dramaturg_repository_domain CHECK (length(domain) BETWEEN 1 AND 128),
  CONSTRAINT dramaturg_repository_name CHECK (length(name) BETWEEN 1 AND 256),
  CONSTRAINT dramaturg_repository_path CHECK (length(path) BETWEEN 1 AND 4096),
  CONSTRAINT dramaturg_repository_incarnation CHECK (length(incarnation) BETWEEN 1 AND 64),
  CONSTRAINT dramaturg_repository_ended CHECK (
    ended IN ('replaced', 'removed') AND ended_at IS NOT NULL OR ended IS NULL AND ended_at IS NULL)
) STRICT;

CREATE UNIQUE INDEX dramaturg_repository_identity ON dramaturg_repository (domain, name, incarnation);
CREATE UNIQUE INDEX dramaturg_repository_standing ON dramaturg_repository (domain, name) WHERE ended IS NULL;

CREATE TABLE dramaturg_proposal (
  id             TEXT NOT NULL PRIMARY KEY,
  repository_id  TEXT NOT NULL REFERENCES dramaturg_repository (id),
  title          TEXT NOT NULL,
  base           TEXT NOT NULL,
  head           TEXT NOT NULL,
  state          TEXT NOT NULL,
  version        INTEGER NOT NULL,
  revision       INTEGER NOT NULL,
  base_commit    TEXT,
  head_commit    TEXT,
  merge_base     TEXT,
  ahead          INTEGER,
  behind         INTEGER,
  files_changed  INTEGER,
  conflicts      INTEGER,
  compared_at    INTEGER,
  trouble_kind   TEXT,
  trouble_code   TEXT,
  trouble_at     INTEGER,
  merging_base   TEXT,
  merging_head   TEXT,
  merging_since  INTEGER,
  merge_commit   TEXT,
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  CONSTRAINT dramaturg_proposal_id CHECK (length(id) = 36),
  CONSTRAINT dramaturg_proposal_title CHECK (length(title) BETWEEN 1 AND 256),
  CONSTRAINT dramaturg_proposal_branches CHECK (
    length(base) BETWEEN 1 AND 512 AND length(head) BETWEEN 1 AND 512 AND base <> head),
  CONSTRAINT dramaturg_proposal_state CHECK (
    state IN ('draft', 'open', 'merging', 'merged', 'closed', 'archived')),
  CONSTRAINT dramaturg_proposal_counters CHECK (version >= 1 AND revision >= version),
  CONSTRAINT dramaturg_proposal_compared CHECK (
    base_commit IS NULL AND head_commit IS NULL AND merge_base IS NULL AND ahead IS NULL AND behind IS NULL
    AND files_changed IS NULL AND conflicts IS NULL AND compared_at IS NULL
    OR base_commit IS NOT NULL AND head_commit IS NOT NULL AND compared_at IS NOT NULL
    AND ahead IS NOT NULL AND ahead >= 0 AND behind IS NOT NULL AND behind >= 0
    AND files_changed IS NOT NULL AND files_changed >= 0 AND (conflicts IS NULL OR conflicts >= 0)),
  CONSTRAINT dramaturg_proposal_trouble CHECK (
    (trouble_kind IS NULL) = (trouble_code IS NULL) AND (trouble_kind IS NULL) = (trouble_at IS NULL)),
  CONSTRAINT dramaturg_proposal_merging CHECK (
    (merging_since IS NOT NULL) = (state = 'merging')
    AND (merging_base IS NULL) = (merging_since IS NULL) AND (merging_head IS NULL) = (merging_since IS NULL)),
  CONSTRAINT dramaturg_proposal_merged CHECK (
    CASE WHEN merge_commit IS NULL THEN state <> 'merged' ELSE state IN ('merged', 'archived') END)
) STRICT;

-- What a pass pages through, and what the scan at start-up looks into.
CREATE INDEX dramaturg_proposal_tracked ON dramaturg_proposal (repository_id, id) WHERE state IN ('draft', 'open');

CREATE INDEX dramaturg_proposal_repository ON dramaturg_proposal (repository_id, id);

CREATE TABLE dramaturg_proposal_snapshot (
  proposal_id TEXT NOT NULL REFERENCES dramaturg_proposal (id) ON DELETE CASCADE,
  version     INTEGER NOT NULL,
  title       TEXT NOT NULL,
  base        TEXT NOT NULL,
  head        TEXT NOT NULL,
  state       TEXT NOT NULL,
  base_commit TEXT,
  head_commit TEXT,
  at          INTEGER NOT NULL,
  PRIMARY KEY (proposal_id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE dramaturg_proposal_feed (
  proposal_id TEXT NOT NULL,
  version     INTEGER NOT NULL,
  kind        TEXT NOT NULL,
  code        TEXT,
  at          INTEGER NOT NULL,
  PRIMARY KEY (proposal_id, version),
  FOREIGN KEY (proposal_id, version) REFERENCES dramaturg_proposal_snapshot (proposal_id, version) ON DELETE CASCADE,
  CONSTRAINT dramaturg_proposal_feed_kind CHECK (
    kind IN ('opened', 'updated', 'readied', 'closed', 'reopened', 'archived', 'merging', 'merged', 'merge_refused'))
) STRICT, WITHOUT ROWID;
