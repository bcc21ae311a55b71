-- Items of steps, with what followed as far as it is known. Reset to that when prepared or replayed,
-- but for what people were asked, which comes before: who may decide is said with the time of asking
-- alone, while the hash of the plan is also said with an approval that is not enough.
-- $1 stack, $2 rows as JSON (projections/workflows.py, PlacedItem).
INSERT INTO workflow_steps AS step (
    stack, instance_id, step_id, item, journal_seq, status, attempts, episode_id, input, result,
    error_class, error_detail, retry_at, plan_hash, summary, approvers, asked_at, expires_at,
    decided_by, decided_reason, compensation_status, compensation_episode_id, started_at,
    finished_at, reused_episode_id, edited_hash, decided_at, paused_at, resumed_at,
    quorum, barred, approved_by, placed_at, begun_at, compensation_begun_at,
    compensation_ended_at
)
SELECT
    $1, instance_id, step_id, item, journal_seq, status, coalesce(attempts, 0), episode_id, input,
    result, error_class, error_detail, retry_at, plan_hash, summary, coalesce(approvers, '{}'),
    asked_at, expires_at, decided_by, decided_reason, compensation_status, compensation_episode_id,
    started_at, finished_at, reused_episode_id, edited_hash, decided_at, paused_at, resumed_at,
    coalesce(quorum, 1), barred, coalesce(approved_by, '{}'), placed_at, begun_at,
    compensation_begun_at, compensation_ended_at
FROM json_to_recordset($2::json) AS placed (
    instance_id uuid, step_id text, item bigint, journal_seq bigint, status text, attempts bigint,
    episode_id uuid, input jsonb, result jsonb, error_class text, error_detail text,
    retry_at timestamptz, plan_hash text, summary text, approvers text[], asked_at timestamptz,
    expires_at timestamptz, decided_by text, decided_reason text, compensation_status text,
    compensation_episode_id uuid, started_at timestamptz, finished_at timestamptz,
    reused_episode_id uuid, edited_hash text, decided_at timestamptz, paused_at timestamptz,
    resumed_at timestamptz,
    quorum bigint, barred text, approved_by text[], placed_at timestamptz, begun_at timestamptz,
    compensation_begun_at timestamptz, compensation_ended_at timestamptz
)
-- guard: item-of-known-instance
WHERE EXISTS (
    SELECT FROM workflow_instances AS whole
    WHERE whole.stack = $1 AND whole.instance_id = placed.instance_id
)
ON CONFLICT (stack, instance_id, step_id, item) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    status = excluded.status,
    attempts = excluded.attempts,
    episode_id = excluded.episode_id,
    input = excluded.input,
    result = excluded.result,
    error_class = excluded.error_class,
    error_detail = excluded.error_detail,
    retry_at = excluded.retry_at,
    plan_hash = coalesce(excluded.plan_hash, step.plan_hash),
    summary = coalesce(excluded.summary, step.summary),
    approvers = CASE
        WHEN excluded.asked_at IS NULL THEN step.approvers ELSE excluded.approvers
    END,
    quorum = CASE WHEN excluded.asked_at IS NULL THEN step.quorum ELSE excluded.quorum END,
    barred = CASE WHEN excluded.asked_at IS NULL THEN step.barred ELSE excluded.barred END,
    approved_by = CASE
        WHEN excluded.plan_hash IS NULL THEN step.approved_by ELSE excluded.approved_by
    END,
    asked_at = coalesce(excluded.asked_at, step.asked_at),
    expires_at = coalesce(excluded.expires_at, step.expires_at),
    decided_by = coalesce(excluded.decided_by, step.decided_by),
    decided_reason = coalesce(excluded.decided_reason, step.decided_reason),
    edited_hash = coalesce(excluded.edited_hash, step.edited_hash),
    decided_at = coalesce(excluded.decided_at, step.decided_at),
    paused_at = excluded.paused_at,
    resumed_at = excluded.resumed_at,
    compensation_status = excluded.compensation_status,
    compensation_episode_id = excluded.compensation_episode_id,
    started_at = excluded.started_at,
    finished_at = excluded.finished_at,
    reused_episode_id = excluded.reused_episode_id,
    placed_at = least(step.placed_at, excluded.placed_at),
    begun_at = excluded.begun_at,
    compensation_begun_at = excluded.compensation_begun_at,
    compensation_ended_at = excluded.compensation_ended_at
