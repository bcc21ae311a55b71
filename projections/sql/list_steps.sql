-- Steps of one episode, in order. $1 stack, $2 episode, $3 most, $4 those after this step, or NULL.
SELECT *
FROM episode_steps
WHERE stack = $1 AND episode_id = $2 AND ($4::bigint IS NULL OR step_no > $4)
ORDER BY step_no
LIMIT $3
