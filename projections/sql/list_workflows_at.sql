-- Instances of workflows as they were at a time, the latest begun first.
-- $1 stack, $2 the time, $3 statuses or NULL, $4 workflow or NULL, $5 and $6 those after the instance
-- that began at this time with this id, or NULL, $7 most.
SELECT *
FROM workflows_at($1, $2)
WHERE ($3::text[] IS NULL OR status = ANY($3))
    AND ($4::text IS NULL OR workflow_id = $4)
    AND (
        $5::timestamptz IS NULL
        OR (started_at, instance_id) < ($5, $6::uuid)  -- way
    )
ORDER BY started_at DESC, instance_id DESC  -- way
LIMIT $7
