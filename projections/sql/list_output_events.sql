-- What happened to one output, latest first. $1 stack, $2 key, $3 most, $4 only by this time, or NULL.
SELECT * FROM output_events
WHERE stack = $1 AND output_key = $2 AND ($4::timestamptz IS NULL OR at <= $4)
ORDER BY journal_seq DESC, event_no DESC
LIMIT $3
