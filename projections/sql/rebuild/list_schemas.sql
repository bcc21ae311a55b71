-- The schemas of rebuilds in this database, and what is noted of each.
SELECT nspname::text AS name, obj_description(oid, 'pg_namespace') AS note
FROM pg_namespace
WHERE nspname ~ '^vigil_(rebuild|replaced)_' AND obj_description(oid, 'pg_namespace') LIKE '{%'
ORDER BY nspname
