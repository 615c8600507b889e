-- Limits: allow-lists and quotas, as store/limits.py describes them. They are documents. While there is any, there is an
-- empty table `limited`: the hot functions ask for its name, which a session finds in its own memory, where a look into
-- the documents would cost each of them 10 to 20 us.

CREATE FUNCTION dramaturg.mark_limited() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(7240317565103285562); -- the first limit and the last one, at once; nobody else's number
  IF NOT EXISTS (SELECT FROM dramaturg.document d WHERE d.kind IN ('allow', 'quota')) THEN
    DROP TABLE IF EXISTS dramaturg.limited;
  ELSIF to_regclass('dramaturg.limited') IS NULL THEN
    CREATE TABLE dramaturg.limited ();
  END IF;
  RETURN NULL;
END
$$;

CREATE TRIGGER document_limits AFTER INSERT ON dramaturg.document
  FOR EACH ROW WHEN (NEW.kind IN ('allow', 'quota')) EXECUTE FUNCTION dramaturg.mark_limited();
CREATE TRIGGER document_limits_gone AFTER DELETE ON dramaturg.document
  FOR EACH ROW WHEN (OLD.kind IN ('allow', 'quota')) EXECUTE FUNCTION dramaturg.mark_limited();

-- What within() asks of a row: the keys of allow-lists, their entries (key, U+001F, name), and of the quotas of what may
-- run the keys of all, and of those that have no place left.
CREATE TYPE dramaturg.bound AS (lists text[], names text[], metered text[], taken text[]);

-- Whether a name is on the lists that hold for a domain; lists: their keys, names: a key, U+001F and a name each.
CREATE FUNCTION dramaturg.listed(what text, domain text, name text, lists text[], names text[]) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  all_of text := what || E'\x1f';
  own    text := what || E'\x1f' || domain;
BEGIN
  RETURN (all_of <> ALL (lists) AND own <> ALL (lists))
    OR all_of || E'\x1f' || name = ANY (names) OR own || E'\x1f' || name = ANY (names);
END
$$;

-- Whether a row of these names may run; the queues that always exist are on every list.
CREATE FUNCTION dramaturg.allowed(domain text, queue text, job_type text, lists text[], names text[]) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RETURN cardinality(lists) = 0 OR (
    (queue IN ('default', 'high', 'low') OR dramaturg.listed('queues', domain, queue, lists, names))
    AND dramaturg.listed('types', domain, job_type, lists, names)
  );
END
$$;

-- Which of the quotas under these keys governs a row: the most specific one; null where none does.
CREATE FUNCTION dramaturg.governing(domain text, owner text, keys text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RETURN CASE
    WHEN domain || E'\x1f' || owner = ANY (keys) THEN domain || E'\x1f' || owner
    WHEN E'\x1f' || owner = ANY (keys) THEN E'\x1f' || owner
    WHEN domain || E'\x1f' = ANY (keys) THEN domain || E'\x1f'
    WHEN E'\x1f' = ANY (keys) THEN E'\x1f'
  END;
END
$$;

CREATE FUNCTION dramaturg.allow_lists(OUT lists text[], OUT names text[])
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT coalesce(array_agg(d.key), '{}'), coalesce((
    SELECT array_agg(l.key || E'\x1f' || n.name)
    FROM dramaturg.document l, json_array_elements_text(l.body -> 'names') AS n(name)
    WHERE l.kind = 'allow' AND json_typeof(l.body -> 'names') = 'array'
  ), '{}')
  FROM dramaturg.document d WHERE d.kind = 'allow' AND json_typeof(d.body -> 'names') = 'array'
$$;

-- The keys of the quotas that set a figure.
CREATE FUNCTION dramaturg.quotas_of(figure text) RETURNS text[]
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT coalesce(array_agg(d.key), '{}') FROM dramaturg.document d
  WHERE d.kind = 'quota' AND json_typeof(d.body -> figure) = 'number'
$$;

-- Of the quotas of what may run, those that have no place left; only leases that stand count.
CREATE FUNCTION dramaturg.full_quotas(asked text[], clock timestamptz, metered text[]) RETURNS text[]
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT coalesce(array_agg(d.key), '{}')
  FROM dramaturg.document d LEFT JOIN (
    SELECT dramaturg.governing(j.domain, j.owner, metered) AS key, count(*) AS live
    FROM dramaturg.job j WHERE cardinality(asked) > 0 AND j.state = 'processing' AND j.leased_until > clock
    GROUP BY 1
  ) running ON running.key = d.key
  WHERE d.kind = 'quota' AND d.key = ANY (asked)
    AND coalesce(running.live, 0) >= (d.body ->> 'max_in_flight')::numeric
$$;

CREATE FUNCTION dramaturg.bounds(clock timestamptz) RETURNS dramaturg.bound
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  found dramaturg.bound;
BEGIN
  SELECT a.lists, a.names INTO found.lists, found.names FROM dramaturg.allow_lists() a;
  found.metered := dramaturg.quotas_of('max_in_flight');
  found.taken := dramaturg.full_quotas(found.metered, clock, found.metered);
  RETURN found;
END
$$;

-- Whether limits let a row start.
CREATE FUNCTION dramaturg.within(domain text, owner text, queue text, job_type text, b dramaturg.bound) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RETURN dramaturg.allowed(domain, queue, job_type, b.lists, b.names)
    AND (cardinality(b.taken) = 0 OR coalesce(dramaturg.governing(domain, owner, b.metered) <> ALL (b.taken), true));
END
$$;

-- due_rows() with one condition more. Made of its text, so that the two can't part; the plan of the plain one stays what
-- it is.
DO $$
DECLARE
  plain text := pg_get_functiondef('dramaturg.due_rows(json, integer, timestamptz)'::regprocedure);
BEGIN
  ASSERT plain LIKE '%/* and within limits */%' AND plain LIKE '%to_regclass(''dramaturg.limited'') IS NOT NULL%';
  plain := replace(plain, 'dramaturg.due_rows(', 'dramaturg.due_within(');
  plain := replace(plain, 'to_regclass(''dramaturg.limited'') IS NOT NULL', 'false');
  EXECUTE replace(plain, '/* and within limits */',
    'AND dramaturg.within(r.domain, r.owner, r.queue, r.job_type, (SELECT dramaturg.bounds(clock)))');
END
$$;

-- Claims of one quota take turns at its document of kind `flight`, until the end of their transactions. By the owner's
-- rights, as whoever claims may have none on others' documents.
CREATE FUNCTION dramaturg.take_turns(keys text[], taken text[], clock timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
AS $$
  INSERT INTO dramaturg.document AS d (kind, key, version, body, updated_at)
  SELECT 'flight', k.key, 1, '{}', clock
  FROM unnest(keys) AS k(key)
  WHERE k.key <> ALL (taken) AND EXISTS (SELECT FROM dramaturg.document q WHERE q.kind = 'quota' AND q.key = k.key)
  ORDER BY k.key
  ON CONFLICT (kind, key) DO UPDATE SET version = d.version + 1, updated_at = excluded.updated_at
$$;

-- Claims where there are limits. What no quota governs goes on as one batch; the others one by one, each counted anew,
-- while the quotas' documents of kind `flight` are held, so that two claims never take the last place. Those are locked
-- in the order of their keys.
CREATE FUNCTION dramaturg.claim_within(claims json, clock timestamptz) RETURNS SETOF dramaturg.job
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
AS $$
#variable_conflict use_column
DECLARE
  bound dramaturg.bound := dramaturg.bounds(clock);
  plain json;
  one   record;
BEGIN
  SELECT json_agg(c.claim) INTO plain
  FROM json_array_elements(claims) AS c(claim) JOIN dramaturg.job j ON j.id = (c.claim ->> 'id')::uuid
  WHERE j.state = 'processing' OR (
    dramaturg.allowed(j.domain, j.queue, j.job_type, bound.lists, bound.names)
    AND dramaturg.governing(j.domain, j.owner, bound.metered) IS NULL
  );
  IF plain IS NOT NULL THEN
    RETURN QUERY SELECT * FROM dramaturg.claim_rows(plain, clock, true);
  END IF;

  PERFORM dramaturg.take_turns(array(
    SELECT DISTINCT dramaturg.governing(j.domain, j.owner, bound.metered)
    FROM json_array_elements(claims) AS c(claim) JOIN dramaturg.job j ON j.id = (c.claim ->> 'id')::uuid
    WHERE j.state = 'queued'
  ), bound.taken, clock);

  FOR one IN
    SELECT k.*
    FROM (
      SELECT c.claim, j.id, j.domain, j.queue, j.job_type, dramaturg.governing(j.domain, j.owner, bound.metered) AS key
      FROM json_array_elements(claims) AS c(claim) JOIN dramaturg.job j ON j.id = (c.claim ->> 'id')::uuid
      WHERE j.state = 'queued'
    ) k
    WHERE k.key IS NOT NULL AND k.key <> ALL (bound.taken)
    ORDER BY k.id
  LOOP
    CONTINUE WHEN NOT dramaturg.allowed(one.domain, one.queue, one.job_type, bound.lists, bound.names);
    CONTINUE WHEN one.key = ANY (dramaturg.full_quotas(ARRAY[one.key], clock, bound.metered));
    RETURN QUERY SELECT * FROM dramaturg.claim_rows(json_build_array(one.claim), clock, true);
  END LOOP;
END
$$;

-- Counts wakes before they are written, and refuses those that limits refuse: DG003 for what is on no list, DG002 for
-- what a quota has no room for. Racing wakes of one quota take turns at its document of kind `spent`, until the end of
-- their transactions.
CREATE FUNCTION dramaturg.admit_wakes(wakes json, clock timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
AS $$
#variable_conflict use_column
DECLARE
  lists    text[];
  names    text[];
  waiting  text[] := dramaturg.quotas_of('max_queued');
  hurried  text[] := dramaturg.quotas_of('submits_per_minute');
  this     bigint := floor(extract(epoch FROM clock) / 60);
  one      record;
  so_far   bigint;
  most     numeric;
  rate     numeric;
  queued   bigint;
  bound    bigint;
BEGIN
  SELECT a.lists, a.names INTO lists, names FROM dramaturg.allow_lists() a;
  SELECT a.* INTO one
  FROM json_to_recordset(wakes) AS a(domain text, queue text, job_type text)
  WHERE NOT dramaturg.allowed(a.domain, a.queue, a.job_type, lists, names) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'DG003', MESSAGE = format(
      CASE WHEN one.queue IN ('default', 'high', 'low') OR dramaturg.listed('queues', one.domain, one.queue, lists, names)
        THEN 'job type ''%2$s'' is not on the list of allowed job types (JOBS_ALLOWED_JOB_TYPES)'
        ELSE 'queue ''%1$s'' is not on the list of allowed queues (JOBS_ALLOWED_QUEUES)' END
      || ' for domain ''%3$s'': nothing was changed; add it to the list, or choose another',
      one.queue, one.job_type, one.domain);
  END IF;
  IF cardinality(waiting || hurried) = 0 THEN
    RETURN;
  END IF;

  INSERT INTO dramaturg.document AS d (kind, key, version, body, updated_at)
  SELECT 'spent', k.key, 1, '{}', clock
  FROM (
    SELECT DISTINCT v.key
    FROM json_to_recordset(wakes) AS a(id uuid, domain text, owner text)
    LEFT JOIN dramaturg.job j ON j.id = a.id
    CROSS JOIN LATERAL (VALUES
      (dramaturg.governing(a.domain, coalesce(j.owner, a.owner), waiting)),
      (dramaturg.governing(a.domain, coalesce(j.owner, a.owner), hurried))
    ) AS v(key)
  ) k
  WHERE k.key IS NOT NULL
  ORDER BY k.key
  ON CONFLICT (kind, key) DO UPDATE SET version = d.version + 1, updated_at = excluded.updated_at;

  FOR one IN
    SELECT k.key, sum(k.adding) AS adding, sum(k.submits) AS submits
    FROM json_to_recordset(wakes) AS a(id uuid, domain text, owner text, once boolean)
    LEFT JOIN dramaturg.job j ON j.id = a.id
    CROSS JOIN LATERAL (VALUES
      (dramaturg.governing(a.domain, coalesce(j.owner, a.owner), waiting),
        (j.id IS NULL OR j.finished_at IS NOT NULL)::integer, 0),
      (dramaturg.governing(a.domain, coalesce(j.owner, a.owner), hurried), 0, 1)
    ) AS k(key, adding, submits)
    WHERE k.key IS NOT NULL AND (j.id IS NULL OR a.once IS NOT TRUE)
    GROUP BY k.key ORDER BY k.key
  LOOP
    SELECT
      CASE WHEN (s.body ->> 'minute')::bigint = this THEN (s.body ->> 'submits')::bigint ELSE 0 END,
      CASE WHEN (s.body ->> 'minute')::bigint = this THEN (s.body ->> 'bound')::bigint END,
      (q.body ->> 'max_queued')::numeric, (q.body ->> 'submits_per_minute')::numeric
    INTO so_far, bound, most, rate
    FROM dramaturg.document s JOIN dramaturg.document q ON q.kind = 'quota' AND q.key = s.key
    WHERE s.kind = 'spent' AND s.key = one.key;
    so_far := so_far + one.submits;
    IF one.submits > 0 AND so_far > rate THEN
      PERFORM dramaturg.refuse_wakes(one.key, rate, 'submits in a minute');
    END IF;
    IF one.adding > 0 THEN
      -- What was counted and added since can only be too much: counting is left out while even that is within.
      IF bound IS NULL OR bound + one.adding > most THEN
        SELECT count(*) FILTER (WHERE j.state = 'queued'), count(*) INTO queued, bound
        FROM dramaturg.job j
        WHERE j.state IN ('queued', 'processing') AND split_part(one.key, E'\x1f', 1) IN ('', j.domain)
          AND dramaturg.governing(j.domain, j.owner, waiting) = one.key;
        IF queued + one.adding > most THEN
          PERFORM dramaturg.refuse_wakes(one.key, most, 'jobs that wait');
        END IF;
      END IF;
      bound := bound + one.adding;
    END IF;
    UPDATE dramaturg.document d
    SET body = json_build_object('minute', this, 'submits', so_far, 'bound', bound)
    WHERE d.kind = 'spent' AND d.key = one.key;
  END LOOP;
END
$$;

CREATE FUNCTION dramaturg.refuse_wakes(key text, most numeric, what text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  domain text := split_part(key, E'\x1f', 1);
  owner  text := split_part(key, E'\x1f', 2);
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'DG002', MESSAGE = format(
    'the quota of %s %s for %s is reached: nothing was changed; wait, or raise it (dramaturg quota set)', most, what,
    coalesce(nullif(concat_ws(' and ', 'domain ' || nullif(domain, ''), 'owner ' || nullif(owner, '')), ''), 'everything'));
END
$$;
