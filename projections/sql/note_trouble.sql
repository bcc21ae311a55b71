-- Why a projection stands still; NULL: it does not. $1 stack, $2 projection, $3 why.
UPDATE projection_checkpoints SET trouble = $3 WHERE stack = $1 AND projection = $2
