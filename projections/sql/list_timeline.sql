-- All that one episode did, in order. $1 stack, $2 episode, $3 most.
SELECT * FROM episode_timeline WHERE stack = $1 AND episode_id = $2 ORDER BY position LIMIT $3
