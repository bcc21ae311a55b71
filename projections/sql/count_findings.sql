-- How many findings there are with each status.
-- $1 stack, $2 severities or NULL, $3 actors or NULL.
SELECT status, count(*) AS findings
FROM findings
WHERE stack = $1
    AND ($2::severity[] IS NULL OR severity = ANY($2))
    AND ($3::text[] IS NULL OR actor_id = ANY($3))
GROUP BY status
ORDER BY status
