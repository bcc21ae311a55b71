-- When the first one was settled of the dead letters that have a row. NULL: none was.
-- $1 stack.
SELECT min(settled_at) AS settled_at FROM dead_letters WHERE stack = $1
