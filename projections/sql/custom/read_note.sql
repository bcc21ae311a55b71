-- What is noted of the schema that search_path names first. NULL: nothing, or there is none.
SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = current_schema()
