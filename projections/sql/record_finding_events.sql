-- The history of findings.
-- $1 stack, then one array per column (projections/findings.py, Happened).
INSERT INTO finding_events (
    stack, finding_key, journal_seq, event_no, kind, raise_no, episode_id, status, severity,
    confidence, summary, evidence_refs, at
)
SELECT
    $1, finding_key, journal_seq, event_no, kind, raise_no, episode_id, status,
    severity::severity, confidence, summary, evidence_refs, at
FROM unnest(
    $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::uuid[], $8::text[],
    $9::text[], $10::double precision[], $11::text[], $12::jsonb[], $13::timestamptz[]
) AS happened (
    finding_key, journal_seq, event_no, kind, raise_no, episode_id, status,
    severity, confidence, summary, evidence_refs, at
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
    at = excluded.at
