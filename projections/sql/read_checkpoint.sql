-- How far a projection has come. $1 stack, $2 projection.
SELECT journal_seq FROM projection_checkpoints WHERE stack = $1 AND projection = $2
