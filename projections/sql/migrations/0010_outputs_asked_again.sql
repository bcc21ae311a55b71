-- Outputs that people are asked about more than once, and those that go on after they have failed.

ALTER TABLE outputs ADD COLUMN asked_at timestamptz;
COMMENT ON COLUMN outputs.asked_at IS
    'Since when people are asked, or were: the last time, if more than once. NULL: it needs no approval.';
COMMENT ON COLUMN outputs.proposal_no IS
    'From 1; grows when the key is proposed anew: after it failed, was canceled, or nobody approved it in time.';
COMMENT ON COLUMN outputs.status IS
    'awaiting_approval, proposed (to be delivered), delivered, failed (for good, unless a person has it tried again), rejected (denied, or not approved in time) or canceled (alone, or with its episode).';
COMMENT ON COLUMN dead_letters.settled_by IS
    'Who decided: a person, or the actor whose episode has proposed the output anew.';


-- What the rows would say had they been so from the beginning.

UPDATE outputs AS output SET asked_at = (
    SELECT max(event.at)
    FROM output_events AS event
    WHERE (event.stack, event.output_key) = (output.stack, output.output_key)
        AND event.kind IN ('output_proposed', 'output_retried')
        -- What people have approved is tried again without asking them.
        AND event.at <= coalesce(output.decided_at, event.at)
)
WHERE payload_hash IS NOT NULL;

UPDATE outputs SET
    resolution = 'expired', decided_at = updated_at, decided_reason = error_detail
WHERE status = 'failed' AND error_class = 'approval_expired' AND resolution IS NULL;


CREATE OR REPLACE VIEW approvals AS
SELECT
    block.stack, 'episode' AS kind, block.episode_id::text AS id, block.episode_id, block.step_no,
    episode.actor_id, episode.expectation_id, block.summary, block.plan, block.plan_hash,
    block.approvers, block.blocked_at AS requested_at, block.expires_at, block.on_expiry,
    CASE
        WHEN block.resolution IS NOT NULL THEN block.resolution
        WHEN episode.finished_at IS NOT NULL THEN 'canceled'
        ELSE 'pending'
    END AS state,
    block.resolved_by AS decided_by, block.resolved_reason AS decided_reason,
    block.resolved_at AS decided_at, block.journal_seq
FROM episode_blocks AS block
JOIN episodes AS episode USING (stack, episode_id)
WHERE block.reason = 'approval'
UNION ALL
SELECT
    stack, 'output', output_key, episode_id, NULL, actor_id, expectation_id, summary,
    payload, payload_hash, approvers, asked_at, expires_at, on_expiry,
    CASE
        WHEN resolution IS NOT NULL THEN resolution
        WHEN status = 'canceled' THEN 'canceled'
        ELSE 'pending'
    END,
    decided_by, decided_reason, decided_at, journal_seq
FROM outputs
WHERE payload_hash IS NOT NULL;
COMMENT ON COLUMN approvals.requested_at IS 'When it was asked: the last time, if more than once.';
COMMENT ON COLUMN approvals.state IS
    'pending, approved, denied, expired (nobody decided in time) or canceled (with its episode, or an output alone).';


CREATE OR REPLACE VIEW inbox AS
SELECT
    block.stack, block.reason AS kind, block.episode_id::text AS id, episode.actor_id,
    episode.expectation_id,
    CASE block.reason
        WHEN 'wait' THEN 'waits for ' || block.ref
        ELSE coalesce(block.summary, left(block.plan::text, 200))
    END AS summary,
    block.blocked_at AS since, block.expires_at,
    CASE block.reason
        WHEN 'wait' THEN 'vigil episodes resolve ' || shell_word(block.ref)
        ELSE format('vigil episodes approve %s', block.episode_id)
    END AS what_to_do,
    block.journal_seq
FROM episodes AS episode
JOIN episode_blocks AS block USING (stack, episode_id)
WHERE episode.blocked_by IN ('approval', 'wait') AND block.resolution IS NULL
UNION ALL
SELECT
    stack, 'output', output_key, actor_id, expectation_id,
    coalesce(summary, left(payload::text, 200)), asked_at, expires_at,
    format('vigil outputs approve %s', shell_word(output_key)), journal_seq
FROM outputs
WHERE status = 'awaiting_approval'
UNION ALL
SELECT
    letter.stack, 'dead_letter', letter.letter_key, letter.actor_id, episode.expectation_id,
    concat_ws(': ', letter.reason, nullif(
        CASE
            WHEN letter.output_key IS NULL THEN letter.detail
            -- The cause is on the last line of a traceback.
            ELSE left(regexp_replace(rtrim(letter.detail, E' \n'), '^.*\n', ''), 120)
        END,
        ''
    )),
    letter.lettered_at, NULL,
    CASE
        WHEN letter.output_key IS NULL THEN 'vigil dead show ' || shell_word(letter.letter_key)
        -- Whoever would try it again is refused.
        WHEN output.status <> 'failed' THEN
            'vigil dead discard --reason ''its output has gone on'' '
            || shell_word(letter.letter_key)
        ELSE 'vigil outputs retry ' || shell_word(letter.output_key)
    END,
    letter.journal_seq
FROM dead_letters AS letter
LEFT JOIN episodes AS episode USING (stack, episode_id)
LEFT JOIN outputs AS output USING (stack, output_key)
WHERE letter.status = 'waiting'
UNION ALL
SELECT
    step.stack, 'workflow_step', step.instance_id::text, 'workflow-' || instance.workflow_id,
    step.step_id,
    CASE step.status
        WHEN 'paused' THEN concat_ws(
            ': ', format('step %s has failed', step.step_id), step.error_class, step.error_detail
        )
        ELSE coalesce(step.summary, format('step %s is to be approved', step.step_id))
    END,
    CASE step.status WHEN 'paused' THEN step.finished_at ELSE step.asked_at END,
    CASE step.status WHEN 'paused' THEN NULL ELSE step.expires_at END,
    CASE step.status
        WHEN 'paused' THEN format(
            'vigil workflows resume %s %s --retry', step.instance_id, step.step_id
        )
        ELSE format('vigil workflows approve %s %s', step.instance_id, step.step_id)
    END,
    step.journal_seq
FROM workflow_steps AS step
JOIN workflow_instances AS instance USING (stack, instance_id)
WHERE step.status IN ('awaiting_approval', 'paused')
ORDER BY since;
