-- How many episodes are there of each status?
SELECT status, count(*) AS episodes
FROM vigil.episodes
WHERE stack = $1
GROUP BY status
ORDER BY status
