-- What people have decided on, and how: approvals of episodes, outputs and steps, the latest first.
-- $1 stack, $2 who, or NULL, $3 actors or NULL, $4 episodes or NULL, $5 only by this time, or NULL, $6
-- to $8 those after the decision at this time, about this, of this kind, or NULL, $9 most.
SELECT *
FROM (
    SELECT
        'episode' AS kind, block.episode_id::text AS id, NULL AS step_id, episode.actor_id,
        episode.expectation_id, episode.subject_id, block.episode_id,
        coalesce(block.summary, left(block.plan::text, 200)) AS summary,
        block.resolution AS decision, block.resolved_by AS person, block.resolved_reason AS reason,
        block.resolved_at AS at, block.edited_hash IS NOT NULL AS is_changed, block.journal_seq
    FROM episode_blocks AS block
    JOIN episodes AS episode USING (stack, episode_id)
    WHERE block.stack = $1 AND block.reason = 'approval' AND block.resolved_by IS NOT NULL
        AND block.resolution IN ('approved', 'denied')
    UNION ALL
    SELECT
        'output', output.output_key, NULL, output.actor_id, output.expectation_id,
        episode.subject_id, output.episode_id,
        coalesce(output.summary, left(output.payload::text, 200)),
        CASE happened.kind
            WHEN 'output_rejected' THEN 'denied'
            WHEN 'output_approval_given' THEN 'approval_given'
            ELSE 'approved'
        END,
        happened.person, happened.reason, happened.at,
        output.edited_hash IS NOT NULL AND output.decided_at = happened.at, happened.journal_seq
    FROM output_events AS happened
    JOIN outputs AS output USING (stack, output_key)
    LEFT JOIN episodes AS episode
        ON episode.stack = output.stack AND episode.episode_id = output.episode_id
    WHERE happened.stack = $1 AND happened.person IS NOT NULL
        AND happened.kind IN ('output_approved', 'output_rejected', 'output_approval_given')
    UNION ALL
    SELECT
        'step', step.instance_id::text, step.step_id, 'workflow-' || instance.workflow_id,
        step.step_id, instance.subject_value, step.episode_id,
        coalesce(step.summary, format('step %s is to be approved', step.step_id)),
        CASE WHEN step.error_class = 'denied' THEN 'denied' ELSE 'approved' END,
        step.decided_by, step.decided_reason, step.decided_at, step.edited_hash IS NOT NULL,
        step.journal_seq
    FROM workflow_steps AS step
    JOIN workflow_instances AS instance USING (stack, instance_id)
    WHERE step.stack = $1 AND step.decided_by IS NOT NULL AND step.decided_at IS NOT NULL
) AS decided
WHERE ($2::text IS NULL OR $2 = ANY(string_to_array(person, ', ')))
    AND ($3::text[] IS NULL OR actor_id = ANY($3))
    AND ($4::uuid[] IS NULL OR episode_id = ANY($4))
    AND ($5::timestamptz IS NULL OR at <= $5)
    AND (
        $6::timestamptz IS NULL
        OR (at, id, kind) < ($6, $7::text, $8::text)  -- way
    )
ORDER BY at DESC, id DESC, kind DESC  -- way
LIMIT $9
