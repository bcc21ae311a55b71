-- One migrator at a time, in the schema that search_path names; makes it when missing.
DO $$
DECLARE
    wanted constant text := current_setting('search_path');
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('vigil.migrate', 0));
    EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', wanted);
    EXECUTE format(
        'COMMENT ON SCHEMA %I IS %L', wanted, 'What the journal says, as rows. Written by the projector alone.'
    );
END
$$;
CREATE TABLE IF NOT EXISTS schema_migrations (
    name text PRIMARY KEY,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE schema_migrations IS 'Which migrations made this schema.';
COMMENT ON COLUMN schema_migrations.name IS 'The migration''s file name.';
COMMENT ON COLUMN schema_migrations.checksum IS 'SHA-256 of the file that was applied, in hex.';
COMMENT ON COLUMN schema_migrations.applied_at IS 'When it was applied.';
