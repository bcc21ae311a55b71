-- Whose instances have ended, each once: from one to the next by the index, as they are few.
-- $1 stack.
WITH RECURSIVE whose (name) AS (
    (
        SELECT workflow_id FROM workflow_instances
        WHERE stack = $1 AND finished_at IS NOT NULL
        ORDER BY workflow_id
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT next.workflow_id FROM workflow_instances AS next
        WHERE next.stack = $1 AND next.finished_at IS NOT NULL
            AND next.workflow_id > whose.name
        ORDER BY next.workflow_id
        LIMIT 1
    )
    FROM whose
    WHERE whose.name IS NOT NULL
)
SELECT 'workflow-' || name AS actor_id FROM whose WHERE name IS NOT NULL
