-- The database refuses what no proposal can be; which state may become which is for lifecycle.py.

-- One row for each incarnation of a repository; the one that has not ended is the repository of that name.
CREATE TABLE dramaturg.repository (
  id            uuid NOT NULL PRIMARY KEY,
  domain        text NOT NULL,
  name          text NOT NULL,
  path          text NOT NULL,
  incarnation   text NOT NULL,
  registered_at timestamptz NOT NULL,
  ended         text,
  ended_at      timestamptz,
  CONSTRAINT repository_domain CHECK (length(domain) BETWEEN 1 AND 128),
  CONSTRAINT repository_name CHECK (length(name) BETWEEN 1 AND 256),
  CONSTRAINT repository_path CHECK (length(path) BETWEEN 1 AND 4096),
  CONSTRAINT repository_incarnation CHECK (length(incarnation) BETWEEN 1 AND 64),
  CONSTRAINT repository_ended CHECK (
    ended IN ('replaced', 'removed') AND ended_at IS NOT NULL OR ended IS NULL AND ended_at IS NULL)
);

CREATE UNIQUE INDEX repository_identity ON dramaturg.repository (domain, name, incarnation);
CREATE UNIQUE INDEX repository_standing ON dramaturg.repository (domain, name) WHERE ended IS NULL;

CREATE TABLE dramaturg.proposal (
  id             uuid NOT NULL PRIMARY KEY,
  repository_id  uuid NOT NULL REFERENCES dramaturg.repository (id),
  title          text NOT NULL,
  base           text NOT NULL,
  head           text NOT NULL,
  state          text NOT NULL,
  version        bigint NOT NULL,
  revision       bigint NOT NULL,
  base_commit    text,
  head_commit    text,
  merge_base     text,
  ahead          bigint,
  behind         bigint,
  files_changed  bigint,
  conflicts      bigint,
  compared_at    timestamptz,
  trouble_kind   text,
  trouble_code   text,
  trouble_at     timestamptz,
  merging_base   text,
  merging_head   text,
  merging_since  timestamptz,
  merge_commit   text,
  created_at     timestamptz NOT NULL,
  updated_at     timestamptz NOT NULL,
  CONSTRAINT proposal_title CHECK (length(title) BETWEEN 1 AND 256),
  CONSTRAINT proposal_branches CHECK (
    length(base) BETWEEN 1 AND 512 AND length(head) BETWEEN 1 AND 512 AND base <> head),
  CONSTRAINT proposal_state CHECK (state IN ('draft', 'open', 'merging', 'merged', 'closed', 'archived')),
  CONSTRAINT proposal_counters CHECK (version >= 1 AND revision >= version),
  CONSTRAINT proposal_compared CHECK (
    base_commit IS NULL AND head_commit IS NULL AND merge_base IS NULL AND ahead IS NULL AND behind IS NULL
    AND files_changed IS NULL AND conflicts IS NULL AND compared_at IS NULL
    OR base_commit IS NOT NULL AND head_commit IS NOT NULL AND compared_at IS NOT NULL
    AND ahead IS NOT NULL AND ahead >= 0 AND behind IS NOT NULL AND behind >= 0
    AND files_changed IS NOT NULL AND files_changed >= 0 AND (conflicts IS NULL OR conflicts >= 0)),
  CONSTRAINT proposal_trouble CHECK (
    (trouble_kind IS NULL) = (trouble_code IS NULL) AND (trouble_kind IS NULL) = (trouble_at IS NULL)),
  CONSTRAINT proposal_merging CHECK (
    (merging_since IS NOT NULL) = (state = 'merging')
    AND (merging_base IS NULL) = (merging_since IS NULL) AND (merging_head IS NULL) = (merging_since IS NULL)),
  CONSTRAINT proposal_merged CHECK (
    CASE WHEN merge_commit IS NULL THEN state <> 'merged' ELSE state IN ('merged', 'archived') END)
);

-- What a pass pages through, and what the scan at start-up looks into.
CREATE INDEX proposal_tracked ON dramaturg.proposal (repository_id, id) WHERE state IN ('draft', 'open');

CREATE INDEX proposal_repository ON dramaturg.proposal (repository_id, id);

CREATE TABLE dramaturg.proposal_snapshot (
  proposal_id uuid NOT NULL REFERENCES dramaturg.proposal (id) ON DELETE CASCADE,
  version     bigint NOT NULL,
  title       text NOT NULL,
  base        text NOT NULL,
  head        text NOT NULL,
  state       text NOT NULL,
  base_commit text,
  head_commit text,
  at          timestamptz NOT NULL,
  PRIMARY KEY (proposal_id, version)
);

CREATE TABLE dramaturg.proposal_feed (
  proposal_id uuid NOT NULL,
  version     bigint NOT NULL,
  kind        text NOT NULL,
  code        text,
  at          timestamptz NOT NULL,
  PRIMARY KEY (proposal_id, version),
  FOREIGN KEY (proposal_id, version) REFERENCES dramaturg.proposal_snapshot (proposal_id, version) ON DELETE CASCADE,
  CONSTRAINT proposal_feed_kind CHECK (
    kind IN ('opened', 'updated', 'readied', 'closed', 'reopened', 'archived', 'merging', 'merged', 'merge_refused'))
);
