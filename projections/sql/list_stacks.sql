-- The stacks that a projection has begun for, by name. $1 most.
SELECT DISTINCT stack
FROM projection_checkpoints
ORDER BY stack
LIMIT $1
