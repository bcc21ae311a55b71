-- What happened to one finding, latest first. $1 stack, $2 key, $3 most.
SELECT * FROM finding_events
WHERE stack = $1 AND finding_key = $2
ORDER BY journal_seq DESC, event_no DESC
LIMIT $3
