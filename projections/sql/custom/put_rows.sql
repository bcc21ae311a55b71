-- Rows of a table of a user: sets columns, and adds to others.
-- $1 stack, $2 rows as JSON.
INSERT INTO {table} AS o (stack, {columns})
SELECT $1, {columns}
FROM json_populate_recordset(NULL::{table}, $2::json)
ON CONFLICT (stack, {key}) DO UPDATE SET {sets}
