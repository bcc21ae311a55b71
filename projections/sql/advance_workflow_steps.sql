-- What happened to items of steps. With a status, the error and the times of its end and of the next
-- attempt are as the last event says; otherwise NULL leaves a column as it is.
-- $1 stack, $2 rows as JSON (projections/workflows.py, ItemProgress).
UPDATE workflow_steps AS step SET
    -- A stop of the same transaction came before, and may be of a later commit. It was about the item
    -- unless a status says that this one had moved on by then.
    journal_seq = CASE
        WHEN advance.status IS NULL
            THEN greatest(step.journal_seq, advance.journal_seq) -- guard: stop-newer-than-item
        ELSE advance.journal_seq -- guard: moved-on-before-stop
    END,
    status = coalesce(advance.status, step.status),
    error_class = CASE
        WHEN advance.status IS NULL THEN step.error_class ELSE advance.error_class
    END,
    error_detail = CASE
        WHEN advance.status IS NULL THEN step.error_detail ELSE advance.error_detail
    END,
    retry_at = CASE WHEN advance.status IS NULL THEN step.retry_at ELSE advance.retry_at END,
    attempts = coalesce(advance.attempts, step.attempts),
    episode_id = coalesce(advance.episode_id, step.episode_id),
    reused_episode_id = coalesce(advance.reused_episode_id, step.reused_episode_id),
    result = coalesce(advance.result, step.result),
    plan_hash = coalesce(advance.plan_hash, step.plan_hash),
    summary = coalesce(advance.summary, step.summary),
    approvers = coalesce(advance.approvers, step.approvers),
    quorum = coalesce(advance.quorum, step.quorum),
    barred = coalesce(advance.barred, step.barred),
    approved_by = coalesce(advance.approved_by, step.approved_by),
    asked_at = coalesce(advance.asked_at, step.asked_at),
    expires_at = coalesce(advance.expires_at, step.expires_at),
    decided_by = coalesce(advance.decided_by, step.decided_by),
    decided_reason = coalesce(advance.decided_reason, step.decided_reason),
    edited_hash = coalesce(advance.edited_hash, step.edited_hash),
    decided_at = coalesce(advance.decided_at, step.decided_at),
    paused_at = coalesce(advance.paused_at, step.paused_at),
    resumed_at = coalesce(advance.resumed_at, step.resumed_at),
    compensation_status = coalesce(advance.compensation_status, step.compensation_status),
    compensation_episode_id = coalesce(
        advance.compensation_episode_id, step.compensation_episode_id
    ),
    compensation_begun_at = coalesce(
        advance.compensation_begun_at, step.compensation_begun_at
    ),
    compensation_ended_at = coalesce(
        advance.compensation_ended_at, step.compensation_ended_at
    ),
    started_at = coalesce(advance.started_at, step.started_at),
    begun_at = coalesce(step.begun_at, advance.begun_at),
    finished_at = CASE
        WHEN advance.status IS NULL THEN step.finished_at ELSE advance.finished_at
    END
FROM json_to_recordset($2::json) AS advance (
    instance_id uuid, step_id text, item bigint, journal_seq bigint, status text, attempts bigint,
    episode_id uuid, result jsonb, error_class text, error_detail text, retry_at timestamptz,
    plan_hash text, summary text, approvers text[], asked_at timestamptz, expires_at timestamptz,
    decided_by text, decided_reason text, compensation_status text, compensation_episode_id uuid,
    started_at timestamptz, finished_at timestamptz, reused_episode_id uuid,
    edited_hash text, decided_at timestamptz, paused_at timestamptz, resumed_at timestamptz,
    quorum bigint, barred text, approved_by text[], begun_at timestamptz,
    compensation_begun_at timestamptz, compensation_ended_at timestamptz
)
WHERE step.stack = $1 AND step.instance_id = advance.instance_id
    AND step.step_id = advance.step_id AND step.item = advance.item
