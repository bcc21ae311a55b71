-- How far a projection has come, and what is in its way. $1 stack, $2 projection.
SELECT journal_seq, mark, trouble FROM projection_checkpoints WHERE stack = $1 AND projection = $2
