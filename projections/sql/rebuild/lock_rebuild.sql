-- The schema of the tables, NULL: there is none, and whether this connection alone may now make new rows of a stack. It
-- may until it ends. $1 stack.
SELECT
    current_schema()::text AS schema,
    current_setting('search_path') AS wanted,
    pg_try_advisory_lock(hashtextextended('vigil.rebuild.' || current_schema() || '.' || $1, 0)) AS is_ours
