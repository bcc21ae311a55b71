-- How many episodes of each actor have not ended?
SELECT
    actor_id,
    count(*) FILTER (WHERE status = 'queued') AS queued,
    count(*) FILTER (WHERE status = 'running') AS running,
    count(*) FILTER (WHERE status = 'blocked') AS blocked
FROM vigil.episodes
WHERE stack = $1 AND status IN ('queued', 'running', 'blocked')
GROUP BY actor_id
ORDER BY actor_id
