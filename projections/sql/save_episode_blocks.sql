-- What episodes wait for, with the answer as far as it is known.
-- Reset to that when replayed over rows that exist.
-- $1 stack, $2 rows as JSON (projections/episodes.py, Block).
INSERT INTO episode_blocks (
    stack, episode_id, step_no, journal_seq, reason, blocked_at, plan, plan_hash, summary,
    approvers, request, ref, expires_at, on_expiry, remind_every_s, resolution, resolved_by,
    resolved_reason, decision_id, resolved_at, editable, edited_hash,
    acting_episode_id, quorum, barred, approved_by
)
SELECT
    $1, episode_id, step_no, journal_seq, reason, blocked_at, plan, plan_hash, summary,
    coalesce(approvers, '{}'), request, ref, expires_at, on_expiry, remind_every_s, resolution,
    resolved_by, resolved_reason, decision_id, resolved_at, coalesce(editable, false),
    edited_hash, acting_episode_id, coalesce(quorum, 1), barred, coalesce(approved_by, '{}')
FROM json_to_recordset($2::json) AS saved (
    episode_id uuid, step_no bigint, journal_seq bigint, reason text, blocked_at timestamptz,
    plan jsonb, plan_hash text, summary text, approvers text[], request text, ref text,
    expires_at timestamptz, on_expiry text, remind_every_s double precision, resolution text,
    resolved_by text, resolved_reason text, decision_id text, resolved_at timestamptz,
    editable boolean, edited_hash text, acting_episode_id uuid, quorum bigint, barred text,
    approved_by text[]
)
-- guard: wait-of-known-episode
WHERE EXISTS (
    SELECT FROM episodes AS whole
    WHERE whole.stack = $1 AND whole.episode_id = saved.episode_id
)
ON CONFLICT (stack, episode_id, step_no) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    reason = excluded.reason,
    blocked_at = excluded.blocked_at,
    plan = excluded.plan,
    plan_hash = excluded.plan_hash,
    summary = excluded.summary,
    approvers = excluded.approvers,
    request = excluded.request,
    ref = excluded.ref,
    expires_at = excluded.expires_at,
    on_expiry = excluded.on_expiry,
    remind_every_s = excluded.remind_every_s,
    resolution = excluded.resolution,
    resolved_by = excluded.resolved_by,
    resolved_reason = excluded.resolved_reason,
    decision_id = excluded.decision_id,
    resolved_at = excluded.resolved_at,
    editable = excluded.editable,
    edited_hash = excluded.edited_hash,
    acting_episode_id = excluded.acting_episode_id,
    quorum = excluded.quorum,
    barred = excluded.barred,
    approved_by = excluded.approved_by
