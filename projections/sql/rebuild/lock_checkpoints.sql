-- How far projections have come, and keeps them there until the transaction ends.
-- $1 stack, $2 projections.
SELECT projection, journal_seq, mark
FROM projection_checkpoints
WHERE stack = $1 AND projection = ANY ($2::text[])
ORDER BY projection
FOR UPDATE
