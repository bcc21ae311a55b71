-- How far each projection of a stack is, which goes no further meanwhile. $1 stack.
SELECT projection, journal_seq FROM projection_checkpoints WHERE stack = $1
ORDER BY projection FOR UPDATE
