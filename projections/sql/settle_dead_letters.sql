-- What people decided about dead letters.
-- $1 stack, then one array per column (projections/dead.py, Settlement).
UPDATE dead_letters AS letter SET
    journal_seq = settled.journal_seq,
    status = settled.status,
    settled_at = settled.settled_at,
    settled_by = settled.settled_by,
    settled_note = settled.settled_note
FROM unnest(
    $2::text[], $3::bigint[], $4::text[], $5::timestamptz[], $6::text[], $7::text[]
) AS settled (letter_key, journal_seq, status, settled_at, settled_by, settled_note)
WHERE letter.stack = $1 AND letter.letter_key = settled.letter_key
