-- The schemas of projections of users.
SELECT nspname::text AS name, substr(nspname, length('vigil_own_') + 1) AS projection
FROM pg_namespace
WHERE nspname ~ '^vigil_own_' AND to_regclass(format('%I.projection_checkpoints', nspname)) IS NOT NULL
ORDER BY nspname
