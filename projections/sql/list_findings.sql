-- Findings, worst first, then the latest changed.
-- $1 stack, $2 status or NULL, $3 severity or NULL, $4 actor or NULL, $5 most.
SELECT
    finding_key, raise_no, status, severity, class, confidence, summary, subject_kind,
    subject_id, actor_id, expectation_id, caused_by_key, raised_by_episode_id, raised_at,
    updated_at, cleared_at, cleared_reason, cleared_by, expires_at, escalated_to,
    acknowledged_by, journal_seq
FROM findings
WHERE stack = $1
    AND ($2::text IS NULL OR status = $2)
    AND ($3::text IS NULL OR severity = $3::severity)
    AND ($4::text IS NULL OR actor_id = $4)
ORDER BY severity DESC, updated_at DESC, journal_seq DESC
LIMIT $5
