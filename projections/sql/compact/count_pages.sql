-- How many pages the rows of a table have. $1 its name.
SELECT pg_relation_size(c.oid) / current_setting('block_size')::bigint
FROM pg_class AS c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = $1
