-- What happened to one output, latest first. $1 stack, $2 key, $3 most.
SELECT * FROM output_events
WHERE stack = $1 AND output_key = $2
ORDER BY journal_seq DESC, event_no DESC
LIMIT $3
