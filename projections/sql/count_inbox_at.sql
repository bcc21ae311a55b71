-- How much of each kind waited for a person at a time. $1 stack, $2 the time, $3 actors or NULL.
SELECT kind, count(*) AS waiting
FROM inbox_at($1, $2)
WHERE $3::text[] IS NULL OR actor_id = ANY($3)
GROUP BY kind
ORDER BY kind
