-- The items of an instance's steps as they were at a time, in the order of those of now.
-- $1 stack, $2 instance, $3 the time, $4 most.
SELECT *
FROM workflow_steps_at($1, $3)
WHERE instance_id = $2
ORDER BY started_at NULLS LAST, step_id, item
LIMIT $4
