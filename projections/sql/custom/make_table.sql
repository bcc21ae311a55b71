-- A table of a user, in the schema that search_path names.
CREATE TABLE {table} (stack text NOT NULL, {columns}, PRIMARY KEY (stack, {key}))
