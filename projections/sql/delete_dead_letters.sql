-- Deletes dead letters.
-- $1 stack, $2 their keys.
WITH gone AS (
    DELETE FROM dead_letters
    WHERE stack = $1 AND letter_key = ANY ($2::text[])
    RETURNING 1
)
SELECT 'dead_letters' AS what, count(*) AS count FROM gone
