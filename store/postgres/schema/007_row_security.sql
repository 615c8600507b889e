-- Row-level security by domain. It binds everybody but the tables' owner (and superusers): whoever else comes sees and
-- changes rows of the domains that stand in app.domain_allowlist, parted by commas, or of all where it is '*'; and of none
-- where it is not set. It is a setting of the transaction: SELECT set_config('app.domain_allowlist', 'chat,print', true).

-- The domains of this transaction; null or empty: none.
CREATE FUNCTION dramaturg.scope() RETURNS text[]
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT string_to_array(current_setting('app.domain_allowlist', true), ',') $$;

-- The domain that a document speaks of; null: of none. Keys are written by store/limits.py, queues.py and sla.py.
CREATE FUNCTION dramaturg.document_domain(kind text, key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN kind IN ('quota', 'spent', 'flight') THEN nullif(split_part(key, E'\x1f', 1), '')
  WHEN kind IN ('queue', 'allow', 'sla') THEN nullif(split_part(key, E'\x1f', 2), '')
END;

-- Sets the scope and passes the moment on: an argument is made before the function that it is given to begins, so a
-- statement that calls one function brings its scope along, in one round trip.
CREATE FUNCTION dramaturg.scoped(domains text, moment timestamptz) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  PERFORM set_config('app.domain_allowlist', domains, true);
  RETURN moment;
END
$$;

-- What these do for all domains they do by the owner's rights: quotas count the rows of everybody, a deleted job takes its
-- history along after it is gone, positions are given to all events, and the triggers are the owner's to switch.
ALTER FUNCTION dramaturg.full_quotas(text[], timestamptz, text[]) SECURITY DEFINER;
ALTER FUNCTION dramaturg.forget_history() SECURITY DEFINER;
ALTER FUNCTION dramaturg.number_events(integer) SECURITY DEFINER;
ALTER FUNCTION dramaturg.arm() SECURITY DEFINER;

-- Rights for those who are not the owner: 'run' for workers, the scheduler and operators, 'wake' for programs that only
-- wake. The owner calls it: SELECT dramaturg.let_in('my_role', 'wake').
CREATE FUNCTION dramaturg.let_in(role name, way text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA dramaturg TO %I', role);
  IF way = 'wake' THEN
    EXECUTE format('GRANT SELECT ON dramaturg.document TO %I', role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE ON dramaturg.job TO %I', role);
  ELSIF way = 'run' THEN
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA dramaturg TO %I', role);
    EXECUTE format(
      'GRANT INSERT, UPDATE, DELETE ON dramaturg.job, dramaturg.history, dramaturg.document, dramaturg.term, '
      'dramaturg.archive, dramaturg.outbox, dramaturg.attachment TO %I', role);
    -- Rows are locked through it; the rights on the table below are asked for as well.
    EXECUTE format('GRANT UPDATE ON dramaturg.admitted TO %I', role);
  ELSE
    RAISE EXCEPTION USING ERRCODE = 'DG001', MESSAGE = 'the way in is run or wake';
  END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION dramaturg.let_in(name, text) FROM PUBLIC;

-- Before version 15 a view can't be asked with its caller's rights, and what may run is asked through one: there the
-- tables stay as they were, and a process that wants this security is refused (store/postgres/store.py).
DO $$
DECLARE
  each name;
  rule text := '(SELECT current_setting(''app.domain_allowlist'', true) = ''*'') OR ';
  own  text := 'domain::text = ANY ((SELECT dramaturg.scope())::text[])';
  its  text := 'EXISTS (SELECT FROM dramaturg.job j WHERE j.id = job_id)';
  of   text := 'dramaturg.document_domain(kind, key)';
  role name;
BEGIN
  IF current_setting('server_version_num')::integer >= 150000 THEN
    EXECUTE 'ALTER VIEW dramaturg.admitted SET (security_invoker = true)';
    FOREACH each IN ARRAY ARRAY['job', 'archive', 'outbox', 'outbox_arrival'] LOOP
      EXECUTE format('CREATE POLICY of_domain ON dramaturg.%I USING (%s%s)', each, rule, own);
    END LOOP;
    FOREACH each IN ARRAY ARRAY['history', 'attachment'] LOOP
      EXECUTE format('CREATE POLICY of_job ON dramaturg.%I USING (%s%s)', each, rule, its);
    END LOOP;
    -- What speaks of no domain is for all to read; written is only what every worker has to say of itself.
    EXECUTE format(
      'CREATE POLICY to_read ON dramaturg.document FOR SELECT USING (%scoalesce(%s = ANY ((SELECT dramaturg.scope())::text[]), '
      '%s IS NULL AND (SELECT cardinality(dramaturg.scope()) > 0)))', rule, of, of);
    FOR each IN SELECT unnest(ARRAY['INSERT', 'UPDATE', 'DELETE']) LOOP
      EXECUTE format(
        'CREATE POLICY %I ON dramaturg.document FOR %s %s (%scoalesce(%s = ANY ((SELECT dramaturg.scope())::text[]), '
        'kind IN (''policy'', ''schedule'', ''consumer'')))',
        'to_' || lower(each), each, CASE each WHEN 'INSERT' THEN 'WITH CHECK' ELSE 'USING' END, rule, of);
    END LOOP;
    FOREACH each IN ARRAY ARRAY['job', 'archive', 'outbox', 'outbox_arrival', 'history', 'attachment', 'document'] LOOP
      EXECUTE format('ALTER TABLE dramaturg.%I ENABLE ROW LEVEL SECURITY', each);
    END LOOP;
  END IF;

  -- Roles belong to the whole server: they may be there already, and whoever migrates may not be allowed to make them.
  -- Then the owner lets other roles in, see above.
  FOREACH role IN ARRAY ARRAY['dramaturg_run', 'dramaturg_wake'] LOOP
    BEGIN
      EXECUTE format('CREATE ROLE %I NOLOGIN', role);
    EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN
      NULL;
    END;
    IF to_regrole(role) IS NOT NULL THEN
      PERFORM dramaturg.let_in(role, CASE role WHEN 'dramaturg_run' THEN 'run' ELSE 'wake' END);
    END IF;
  END LOOP;
END
$$;
