-- What people decided about dead letters.
-- $1 stack, $2 rows as JSON (projections/dead_letters.py, Settlement).
UPDATE dead_letters AS letter SET
    journal_seq = settled.journal_seq,
    status = settled.status,
    settled_at = settled.settled_at,
    settled_by = settled.settled_by,
    settled_note = settled.settled_note
FROM json_to_recordset($2::json) AS settled (
    letter_key text, journal_seq bigint, status text, settled_at timestamptz,
    settled_by text, settled_note text
)
WHERE letter.stack = $1 AND letter.letter_key = settled.letter_key
