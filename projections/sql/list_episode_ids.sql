-- The ids of episodes from one to another. $1 stack, $2 first, $3 last, $4 most.
SELECT episode_id
FROM episodes
WHERE stack = $1 AND episode_id BETWEEN $2 AND $3
ORDER BY episode_id
LIMIT $4
