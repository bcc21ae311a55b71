-- How many findings there were with each status at a time. $1 stack, $2 the time, $3 severities or
-- NULL, $4 actors or NULL.
SELECT status, count(*) AS findings
FROM findings_at($1, $2)
WHERE ($3::severity[] IS NULL OR severity = ANY($3))
    AND ($4::text[] IS NULL OR actor_id = ANY($4))
GROUP BY status
ORDER BY status
