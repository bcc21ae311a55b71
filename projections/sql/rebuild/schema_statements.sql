-- What is done to a schema beside the tables, as statements.
-- $1 the schema, $2 what is noted of it, as JSON, $3 its other name, $4 the schema of the tables.
SELECT
    format('CREATE SCHEMA %I', $1::text) AS make,
    format('COMMENT ON SCHEMA %I IS %L', $1::text, $2::text) AS note,
    format('ALTER SCHEMA %I RENAME TO %I', $1::text, $3::text) AS rename,
    format('DROP SCHEMA IF EXISTS %I CASCADE', $1::text) AS remove,
    format('%I, %I', $1::text, $4::text) AS search_path
