-- The schema of a projection of a user, which search_path names, and where it keeps its positions.
-- Its projectors take turns.
DO $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('vigil.custom', 0));
    EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', current_setting('search_path'));
END
$$;
CREATE TABLE IF NOT EXISTS projection_checkpoints (
    stack text NOT NULL,
    projection text NOT NULL,
    journal_seq bigint NOT NULL,
    mark text NOT NULL DEFAULT '',
    trouble text,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (stack, projection)
) WITH (fillfactor = 50);
