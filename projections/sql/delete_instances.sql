-- Deletes instances of workflows with their steps.
-- $1 stack, $2 their ids.
WITH gone AS (
    DELETE FROM workflow_instances
    WHERE stack = $1 AND instance_id = ANY ($2::text[]::uuid[])
    RETURNING 1
), steps AS (
    DELETE FROM workflow_steps
    WHERE stack = $1 AND instance_id = ANY ($2::text[]::uuid[])
    RETURNING 1
)
SELECT 'workflow_instances' AS what, count(*) AS count FROM gone
UNION ALL
SELECT 'workflow_steps', count(*) FROM steps
