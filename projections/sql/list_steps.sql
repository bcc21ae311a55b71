-- Steps of one episode, in order. $1 stack, $2 episode, $3 most.
SELECT * FROM episode_steps WHERE stack = $1 AND episode_id = $2 ORDER BY step_no LIMIT $3
