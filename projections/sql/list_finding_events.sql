-- What happened to one finding, latest first. $1 stack, $2 key, $3 most, $4 only by this time, or NULL.
SELECT * FROM finding_events
WHERE stack = $1 AND finding_key = $2 AND ($4::timestamptz IS NULL OR at <= $4)
ORDER BY journal_seq DESC, event_no DESC
LIMIT $3
