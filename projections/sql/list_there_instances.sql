-- Which of some instances of workflows are there.
-- $1 stack, $2 their ids.
SELECT instance_id::text AS id, 0::bigint AS number FROM workflow_instances
WHERE stack = $1 AND instance_id = ANY ($2::text[]::uuid[])
