-- How many outputs there are with each status.
-- $1 stack, $2 actors or NULL, $3 adapter or NULL, $4 episode or NULL.
SELECT status, count(*) AS outputs
FROM outputs
WHERE stack = $1
    AND ($2::text[] IS NULL OR actor_id = ANY($2))
    AND ($3::text IS NULL OR adapter = $3)
    AND ($4::uuid IS NULL OR episode_id = $4)
GROUP BY status
ORDER BY status
