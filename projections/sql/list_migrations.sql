-- What was applied to this schema.
SELECT name, checksum FROM schema_migrations ORDER BY name
