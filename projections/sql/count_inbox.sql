-- How much of each kind waits for a person. $1 stack, $2 actors or NULL.
SELECT kind, count(*) AS waiting
FROM inbox
WHERE stack = $1 AND ($2::text[] IS NULL OR actor_id = ANY($2))
GROUP BY kind
ORDER BY kind
