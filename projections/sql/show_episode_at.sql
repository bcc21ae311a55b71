-- What changes of one episode, as it was at a time. $1 stack, $2 episode, $3 the time.
SELECT * FROM episodes_at($1, $3) WHERE episode_id = $2
