-- The role that may read everything here and change nothing; grant it to whoever queries:
-- GRANT vigil_reader TO someone. Roles belong to the whole server, so this one may exist
-- already, and who migrates may lack the right to make it. Then the grants are left out.

DO $$
BEGIN
    CREATE ROLE vigil_reader NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'role vigil_reader was not created: % may not create roles', current_user;
END
$$;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'vigil_reader') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO vigil_reader', current_schema());
        EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO vigil_reader', current_schema());
        EXECUTE format(
            'ALTER DEFAULT PRIVILEGES IN SCHEMA %I GRANT SELECT ON TABLES TO vigil_reader',
            current_schema()
        );
    END IF;
END
$$;
