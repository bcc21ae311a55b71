-- The hash of what was approved with changes.

ALTER TABLE episode_blocks ADD COLUMN edited_hash text;
COMMENT ON COLUMN episode_blocks.edited_hash IS
    'SHA-256 of the changed plan that was approved, in hex. NULL: the plan was not changed, or the row is older than this column.';
ALTER TABLE outputs ADD COLUMN edited_hash text;
COMMENT ON COLUMN outputs.edited_hash IS
    'SHA-256 of the changed payload that was approved, in hex; `payload` has the changes. NULL: it was not changed, or the row is older than this column.';
ALTER TABLE workflow_steps ADD COLUMN edited_hash text;
COMMENT ON COLUMN workflow_steps.edited_hash IS
    'SHA-256 of the changed inputs that were approved, in hex; in the row of the first item. NULL: they were not changed, or the row is older than this column.';

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
    block.resolved_at AS decided_at, block.journal_seq, block.edited_hash
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
    decided_by, decided_reason, decided_at, journal_seq, edited_hash
FROM outputs
WHERE payload_hash IS NOT NULL;
COMMENT ON COLUMN approvals.edited_hash IS
    'SHA-256 of the changed plan or payload that was approved, in hex. NULL: it was approved without changes or not at all, or the row is older than this column.';
COMMENT ON COLUMN approvals.plan IS
    'What is to be done or delivered: of an episode the plan in the request, of an output the payload with its changes.';
COMMENT ON COLUMN approvals.plan_hash IS
    'SHA-256 of the plan in the request, in hex; a decision names it.';
