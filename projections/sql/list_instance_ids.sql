-- The ids of instances of workflows from one to another. $1 stack, $2 first, $3 last, $4 most.
SELECT instance_id
FROM workflow_instances
WHERE stack = $1 AND instance_id BETWEEN $2 AND $3
ORDER BY instance_id
LIMIT $4
