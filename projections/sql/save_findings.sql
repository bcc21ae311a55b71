-- Findings as their last event left them.
-- $1 stack, then one array per column (projections/findings.py, Saved).
INSERT INTO findings (
    stack, finding_key, raise_no, journal_seq, status, actor_id, expectation_id, class,
    severity, confidence, summary, subject_kind, subject_id, evidence_refs, caused_by_key,
    raised_by_episode_id, raised_at, updated_at, cleared_by_episode_id, cleared_at,
    cleared_reason
)
SELECT
    $1, finding_key, raise_no, journal_seq, status, actor_id, expectation_id, class,
    severity::severity, confidence, summary, subject_kind, subject_id, evidence_refs,
    caused_by_key, raised_by_episode_id, raised_at, updated_at, cleared_by_episode_id,
    cleared_at, cleared_reason
FROM unnest(
    $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::double precision[], $11::text[], $12::text[], $13::text[], $14::jsonb[],
    $15::text[], $16::uuid[], $17::timestamptz[], $18::timestamptz[], $19::uuid[],
    $20::timestamptz[], $21::text[]
) AS saved (
    finding_key, raise_no, journal_seq, status, actor_id, expectation_id, class,
    severity, confidence, summary, subject_kind, subject_id, evidence_refs,
    caused_by_key, raised_by_episode_id, raised_at, updated_at, cleared_by_episode_id,
    cleared_at, cleared_reason
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
    cleared_reason = excluded.cleared_reason
