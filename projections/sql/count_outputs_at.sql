-- How many outputs there were with each status at a time.
-- $1 stack, $2 the time, $3 actors or NULL, $4 adapter or NULL, $5 episode or NULL.
SELECT status, count(*) AS outputs
FROM outputs_at($1, $2)
WHERE ($3::text[] IS NULL OR actor_id = ANY($3))
    AND ($4::text IS NULL OR adapter = $4)
    AND ($5::uuid IS NULL OR episode_id = $5)
GROUP BY status
ORDER BY status
