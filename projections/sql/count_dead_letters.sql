-- How many dead letters there are with each status. $1 stack, $2 actors or NULL.
SELECT status, count(*) AS letters
FROM dead_letters
WHERE stack = $1 AND ($2::text[] IS NULL OR actor_id = ANY($2))
GROUP BY status
ORDER BY status
