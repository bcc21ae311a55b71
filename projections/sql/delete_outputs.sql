-- Deletes outputs with their history.
-- $1 stack, $2 their keys.
WITH gone AS (
    DELETE FROM outputs
    WHERE stack = $1 AND output_key = ANY ($2::text[])
    RETURNING 1
), events AS (
    DELETE FROM output_events
    WHERE stack = $1 AND output_key = ANY ($2::text[])
    RETURNING 1
)
SELECT 'outputs' AS what, count(*) AS count FROM gone
UNION ALL
SELECT 'output_events', count(*) FROM events
