-- How many episodes ended, and how, minute by minute?
SELECT date_trunc('minute', queued_at) AS minute, status, count(*) AS episodes
FROM vigil.episodes
WHERE stack = $1
GROUP BY minute, status
ORDER BY minute DESC, status
LIMIT 10
