-- The tables and views of the schema that names are found in, by name.
SELECT table_name::text AS name
FROM information_schema.tables
WHERE table_schema = current_schema()
ORDER BY table_name
