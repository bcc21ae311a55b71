-- Events that did not fire an expectation, the latest first.
-- $1 stack, $2 actor or NULL, $3 expectation or NULL, $4 event or NULL, $5 reason or NULL, $6 and $7
-- those before the one that was refused at this time with this sequence, or NULL, $8 most.
SELECT
    event_id, event, actor_id, expectation_id, subject_id, refused_at, node, reason, compared_with,
    journal_seq
FROM refusals
WHERE stack = $1
    AND ($2::text IS NULL OR actor_id = $2)
    AND ($3::text IS NULL OR expectation_id = $3)
    AND ($4::text IS NULL OR event = $4)
    AND ($5::text IS NULL OR reason = $5)
    AND ($6::timestamptz IS NULL OR (refused_at, journal_seq) < ($6, $7::bigint))  -- way
ORDER BY refused_at DESC, journal_seq DESC  -- way
LIMIT $8
