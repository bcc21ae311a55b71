-- One episode. $1 stack, $2 episode.
SELECT * FROM episodes WHERE stack = $1 AND episode_id = $2
