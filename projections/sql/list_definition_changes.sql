-- When definitions were applied or disabled since then, in order. $1 stack, $2 since when, $3 most.
SELECT kind, definition_id, change, revision, at, person, journal_seq
FROM definition_history
WHERE stack = $1 AND at >= $2
ORDER BY at, journal_seq, event_no
LIMIT $3
