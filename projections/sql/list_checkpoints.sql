-- How far each projection has come. $1 stack.
SELECT projection, journal_seq, updated_at
FROM projection_checkpoints
WHERE stack = $1
ORDER BY projection
