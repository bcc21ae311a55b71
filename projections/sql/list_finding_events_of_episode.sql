-- What one episode did to findings, in order. $1 stack, $2 episode, $3 most.
SELECT * FROM finding_events
WHERE stack = $1 AND episode_id = $2
ORDER BY journal_seq, event_no
LIMIT $3
