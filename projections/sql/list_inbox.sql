-- What waits for a person, the oldest first, who may decide, none: anybody, who of so many has approved
-- it, and whether what is approved may be changed.
-- $1 stack, $2 kinds or NULL, $3 actors or NULL, $4 to $8 those after what waits since this time, of
-- this kind, with this id, expectation and item, or NULL, $9 most.
WITH listed AS (
    SELECT
        kind, id, actor_id, expectation_id, summary, since, expires_at, what_to_do, episodes,
        subject_kind, subject_id, item, journal_seq
    FROM inbox
    WHERE stack = $1
        AND ($2::text[] IS NULL OR kind = ANY($2))
        AND ($3::text[] IS NULL OR actor_id = ANY($3))
        AND (
            $4::timestamptz IS NULL
            OR (since, kind, id, coalesce(expectation_id, ''), coalesce(item, 0))
                > ($4, $5::text, $6::text, coalesce($7::text, ''), coalesce($8::bigint, 0))  -- way
        )
    ORDER BY
        since ASC, kind ASC, id ASC,  -- way
        coalesce(expectation_id, '') ASC, coalesce(item, 0) ASC  -- way
    LIMIT $9
)
SELECT
    listed.*,
    coalesce(asked.approvers, '{}') AS approvers,
    coalesce(asked.editable, false) AS editable,
    coalesce(asked.quorum, 1) AS quorum,
    coalesce(asked.approved_by, '{}') AS approved_by
FROM listed
LEFT JOIN LATERAL (
    (
        SELECT block.approvers, block.editable, block.quorum, block.approved_by
        FROM episode_blocks AS block
        WHERE block.stack = $1
            AND block.episode_id = CASE WHEN listed.kind = 'approval' THEN listed.id::uuid END
            AND block.resolution IS NULL  -- guard: inbox-deciders-of-waiting
        ORDER BY block.step_no DESC
        LIMIT 1
    )
    UNION ALL
    SELECT output.approvers, true, output.quorum, output.approved_by
    FROM outputs AS output
    WHERE output.stack = $1
        AND output.output_key = CASE WHEN listed.kind = 'output' THEN listed.id END
    UNION ALL
    (
        SELECT step.approvers, true, step.quorum, step.approved_by
        FROM workflow_steps AS step
        WHERE step.stack = $1
            AND step.instance_id = CASE WHEN listed.kind = 'workflow_step' THEN listed.id::uuid END
            AND step.step_id = listed.expectation_id
            AND step.status = 'awaiting_approval'  -- guard: failed-step-not-changeable
        LIMIT 1
    )
) AS asked ON true
ORDER BY
    listed.since ASC, listed.kind ASC, listed.id ASC,  -- way
    coalesce(listed.expectation_id, '') ASC, coalesce(listed.item, 0) ASC  -- way
