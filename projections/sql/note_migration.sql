-- $1 name, $2 checksum.
INSERT INTO schema_migrations (name, checksum) VALUES ($1, $2)
