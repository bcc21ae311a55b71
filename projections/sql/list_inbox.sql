-- What waits for a person, the oldest first, who may decide, none: anybody, and whether what is
-- approved may be changed.
-- $1 stack, $2 actor or NULL, $3 most.
WITH listed AS (
    SELECT
        kind, id, actor_id, expectation_id, summary, since, expires_at, what_to_do, episodes,
        subject_kind, subject_id, journal_seq
    FROM inbox
    WHERE stack = $1 AND ($2::text IS NULL OR actor_id = $2)
    ORDER BY since, kind, id
    LIMIT $3
)
SELECT
    listed.*,
    coalesce(
        CASE listed.kind
            WHEN 'approval' THEN (
                SELECT block.approvers
                FROM episode_blocks AS block
                WHERE block.stack = $1 AND block.episode_id = listed.id::uuid
                    AND block.resolution IS NULL  -- guard: inbox-deciders-of-waiting
                ORDER BY block.step_no DESC
                LIMIT 1
            )
            WHEN 'output' THEN (
                SELECT output.approvers
                FROM outputs AS output
                WHERE output.stack = $1 AND output.output_key = listed.id
            )
            WHEN 'workflow_step' THEN (
                SELECT step.approvers
                FROM workflow_steps AS step
                WHERE step.stack = $1 AND step.instance_id = listed.id::uuid
                    AND step.step_id = listed.expectation_id
                    AND step.status = 'awaiting_approval'
                LIMIT 1
            )
        END,
        '{}'
    ) AS approvers,
    CASE listed.kind
        WHEN 'approval' THEN coalesce((
            SELECT block.editable
            FROM episode_blocks AS block
            WHERE block.stack = $1 AND block.episode_id = listed.id::uuid
                AND block.resolution IS NULL
            ORDER BY block.step_no DESC
            LIMIT 1
        ), false)
        WHEN 'workflow_step' THEN EXISTS (
            SELECT
            FROM workflow_steps AS step
            WHERE step.stack = $1 AND step.instance_id = listed.id::uuid
                AND step.step_id = listed.expectation_id
                AND step.status = 'awaiting_approval'  -- guard: failed-step-not-changeable
        )
        ELSE listed.kind = 'output'
    END AS editable
FROM listed
ORDER BY listed.since, listed.kind, listed.id
