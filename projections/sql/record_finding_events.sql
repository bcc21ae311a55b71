-- The history of findings.
-- $1 stack, $2 rows as JSON (projections/findings.py, Happened).
INSERT INTO finding_events (
    stack, finding_key, journal_seq, event_no, kind, raise_no, episode_id, status, severity,
    confidence, summary, evidence_refs, at, from_severity, person, reason, expires_at
)
SELECT $1, happened.*
FROM json_to_recordset($2::json) AS happened (
    finding_key text, journal_seq bigint, event_no bigint, kind text, raise_no bigint,
    episode_id uuid, status text, severity severity, confidence double precision,
    summary text, evidence_refs jsonb, at timestamptz, from_severity severity, person text,
    reason text, expires_at timestamptz
)
ON CONFLICT (stack, finding_key, journal_seq, event_no) DO UPDATE SET
    kind = excluded.kind,
    raise_no = excluded.raise_no,
    episode_id = excluded.episode_id,
    status = excluded.status,
    severity = excluded.severity,
    confidence = excluded.confidence,
    summary = excluded.summary,
    evidence_refs = excluded.evidence_refs,
    at = excluded.at,
    from_severity = excluded.from_severity,
    person = excluded.person,
    reason = excluded.reason,
    expires_at = excluded.expires_at
