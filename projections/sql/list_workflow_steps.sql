-- The items of an instance's steps, those that began first before the others.
-- $1 stack, $2 instance, $3 most.
SELECT *
FROM workflow_steps
WHERE stack = $1 AND instance_id = $2
ORDER BY started_at NULLS LAST, step_id, item
LIMIT $3
