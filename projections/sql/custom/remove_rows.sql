-- Rows of a table of a user that are taken away.
-- $1 stack, $2 their keys as JSON.
DELETE FROM {table} AS o
USING json_populate_recordset(NULL::{table}, $2::json) AS g
WHERE o.stack = $1 AND {same}
