-- Findings, worst first, then the latest changed.
-- $1 stack, $2 statuses or NULL, $3 severities or NULL, $4 actors or NULL, $5 to $9 those after the
-- finding with this severity, changed at this time by this commit, with this key and raise, or NULL,
-- $10 most.
SELECT
    finding_key, raise_no, status, severity, class, confidence, summary, subject_kind,
    subject_id, actor_id, expectation_id, caused_by_key, raised_by_episode_id, raised_at,
    updated_at, cleared_at, cleared_reason, cleared_by, expires_at, escalated_to,
    acknowledged_by, journal_seq
FROM findings
WHERE stack = $1
    AND ($2::text[] IS NULL OR status = ANY($2))
    AND ($3::severity[] IS NULL OR severity = ANY($3))
    AND ($4::text[] IS NULL OR actor_id = ANY($4))
    AND (
        $5::severity IS NULL
        OR (severity, updated_at, journal_seq, finding_key, raise_no)
            < ($5, $6::timestamptz, $7::bigint, $8::text, $9::bigint)  -- way
    )
ORDER BY
    severity DESC, updated_at DESC, journal_seq DESC, finding_key DESC, raise_no DESC  -- way
LIMIT $10
