-- Findings as their last event left them.
-- $1 stack, $2 rows as JSON (projections/findings.py, Saved).
INSERT INTO findings (
    stack, finding_key, raise_no, journal_seq, status, actor_id, expectation_id, class,
    severity, confidence, summary, subject_kind, subject_id, evidence_refs, caused_by_key,
    raised_by_episode_id, raised_at, updated_at, cleared_by_episode_id, cleared_at,
    cleared_reason, cleared_by, ttl_s, expires_at, escalated_to, acknowledged_by,
    acknowledged_at, superseded_at
)
SELECT $1, saved.*
FROM json_to_recordset($2::json) AS saved (
    finding_key text, raise_no bigint, journal_seq bigint, status text, actor_id text,
    expectation_id text, class text, severity severity, confidence double precision,
    summary text, subject_kind text, subject_id text, evidence_refs jsonb,
    caused_by_key text, raised_by_episode_id uuid, raised_at timestamptz,
    updated_at timestamptz, cleared_by_episode_id uuid, cleared_at timestamptz,
    cleared_reason text, cleared_by text, ttl_s double precision, expires_at timestamptz,
    escalated_to severity, acknowledged_by text, acknowledged_at timestamptz,
    superseded_at timestamptz
)
ON CONFLICT (stack, finding_key, raise_no) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    status = excluded.status,
    actor_id = excluded.actor_id,
    expectation_id = excluded.expectation_id,
    class = excluded.class,
    severity = excluded.severity,
    confidence = excluded.confidence,
    summary = excluded.summary,
    subject_kind = excluded.subject_kind,
    subject_id = excluded.subject_id,
    evidence_refs = excluded.evidence_refs,
    caused_by_key = excluded.caused_by_key,
    raised_by_episode_id = excluded.raised_by_episode_id,
    raised_at = excluded.raised_at,
    updated_at = excluded.updated_at,
    cleared_by_episode_id = excluded.cleared_by_episode_id,
    cleared_at = excluded.cleared_at,
    cleared_reason = excluded.cleared_reason,
    cleared_by = excluded.cleared_by,
    ttl_s = excluded.ttl_s,
    expires_at = excluded.expires_at,
    escalated_to = excluded.escalated_to,
    acknowledged_by = excluded.acknowledged_by,
    acknowledged_at = excluded.acknowledged_at,
    superseded_at = excluded.superseded_at
