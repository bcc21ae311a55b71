-- How far each projection has come, and what is in its way. $1 stack.
SELECT projection, journal_seq, trouble, updated_at
FROM projection_checkpoints
WHERE stack = $1
ORDER BY projection
