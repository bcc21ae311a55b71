-- The times that rows are cut off by. $1 stack.
SELECT what, actor_id, before FROM retention_cuts WHERE stack = $1
