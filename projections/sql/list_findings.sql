-- Findings, worst first, then the latest changed: as many of each status as the page has, by the index
-- that has their order, and of those the first.
-- $1 stack, $2 statuses or NULL, $3 severities or NULL, $4 actors or NULL, $5 to $8 those after the
-- finding with this severity, changed at this time, with this key and raise, or NULL, $9 most.
SELECT listed.*
FROM unnest(
    coalesce($2::text[], ARRAY['active', 'cleared', 'expired', 'superseded'])
) AS of (status)
CROSS JOIN LATERAL (
    SELECT
        finding_key, raise_no, status, severity, class, confidence, summary, subject_kind,
        subject_id, actor_id, expectation_id, caused_by_key, raised_by_episode_id, raised_at,
        updated_at, cleared_at, cleared_reason, cleared_by, expires_at, escalated_to,
        acknowledged_by, journal_seq
    FROM findings
    WHERE stack = $1 AND status = of.status
        AND ($3::severity[] IS NULL OR severity = ANY($3))
        AND ($4::text[] IS NULL OR actor_id = ANY($4))
        AND (
            $5::severity IS NULL
            OR (severity, updated_at, finding_key, raise_no)
                < ($5, $6::timestamptz, $7::text, $8::bigint)  -- way
        )
    ORDER BY severity DESC, updated_at DESC, finding_key DESC, raise_no DESC  -- way
    LIMIT $9
) AS listed
ORDER BY severity DESC, updated_at DESC, finding_key DESC, raise_no DESC  -- way
LIMIT $9
