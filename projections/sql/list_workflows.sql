-- Instances of workflows, the latest begun first.
-- $1 stack, $2 statuses or NULL, $3 workflow or NULL, $4 and $5 those after the instance that began
-- at this time with this id, or NULL, $6 most.
SELECT
    instance_id, workflow_id, status, mode, subject_value, items, done, running, waiting,
    parent_instance_id, error_class, error_detail, failed_step, started_at, updated_at,
    finished_at, journal_seq, budget_usd, spent_usd
FROM workflows
WHERE stack = $1
    AND ($2::text[] IS NULL OR status = ANY($2))
    AND ($3::text IS NULL OR workflow_id = $3)
    AND (
        $4::timestamptz IS NULL
        OR (started_at, instance_id) < ($4, $5::uuid)  -- way
    )
ORDER BY started_at DESC, instance_id DESC  -- way
LIMIT $6
