-- Outputs as they were proposed, with what followed as far as it is known.
-- Reset to that when proposed anew, or replayed over rows that exist.
-- $1 stack, $2 rows as JSON (projections/outputs.py, Proposed).
INSERT INTO outputs (
    stack, output_key, journal_seq, proposal_no, episode_id, actor_id, expectation_id, adapter,
    status, payload, payload_hash, summary, approvers, asked_at, expires_at, on_expiry,
    remind_every_s, resolution, decided_by, decided_reason, decision_id, decided_at, attempts,
    next_attempt_at, delivered_ref, error_class, error_detail, created_at, updated_at,
    delivered_at, canceled_at, edited_hash, quorum, barred, approved_by
)
SELECT
    $1, output_key, journal_seq, proposal_no, episode_id, actor_id, expectation_id, adapter,
    status, payload, payload_hash, summary, coalesce(approvers, '{}'), asked_at, expires_at,
    on_expiry, remind_every_s, resolution, decided_by, decided_reason, decision_id, decided_at,
    coalesce(attempts, 0), next_attempt_at, delivered_ref, error_class, error_detail, created_at,
    updated_at, delivered_at, canceled_at, edited_hash, coalesce(quorum, 1), barred,
    coalesce(approved_by, '{}')
FROM json_to_recordset($2::json) AS proposed (
    output_key text, journal_seq bigint, proposal_no bigint, episode_id uuid, actor_id text,
    expectation_id text, adapter text, status text, payload jsonb, payload_hash text,
    summary text, approvers text[], asked_at timestamptz, expires_at timestamptz, on_expiry text,
    remind_every_s double precision, resolution text, decided_by text, decided_reason text,
    decision_id text, decided_at timestamptz, attempts bigint, next_attempt_at timestamptz,
    delivered_ref text, error_class text, error_detail text, created_at timestamptz,
    updated_at timestamptz, delivered_at timestamptz, canceled_at timestamptz, edited_hash text,
    quorum bigint, barred text, approved_by text[]
)
ON CONFLICT (stack, output_key) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    proposal_no = excluded.proposal_no,
    episode_id = excluded.episode_id,
    actor_id = excluded.actor_id,
    expectation_id = excluded.expectation_id,
    adapter = excluded.adapter,
    status = excluded.status,
    payload = excluded.payload,
    payload_hash = excluded.payload_hash,
    summary = excluded.summary,
    approvers = excluded.approvers,
    asked_at = excluded.asked_at,
    expires_at = excluded.expires_at,
    on_expiry = excluded.on_expiry,
    remind_every_s = excluded.remind_every_s,
    resolution = excluded.resolution,
    decided_by = excluded.decided_by,
    decided_reason = excluded.decided_reason,
    decision_id = excluded.decision_id,
    decided_at = excluded.decided_at,
    attempts = excluded.attempts,
    next_attempt_at = excluded.next_attempt_at,
    delivered_ref = excluded.delivered_ref,
    error_class = excluded.error_class,
    error_detail = excluded.error_detail,
    created_at = excluded.created_at,
    updated_at = excluded.updated_at,
    delivered_at = excluded.delivered_at,
    canceled_at = excluded.canceled_at,
    edited_hash = excluded.edited_hash,
    quorum = excluded.quorum,
    barred = excluded.barred,
    approved_by = excluded.approved_by
