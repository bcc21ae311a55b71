-- Findings as they were at a time, worst first, then the latest changed. What has not changed since was
-- then as it is, so the first of each status are found by the index of now; of the few that have
-- changed since, all are looked at.
-- $1 stack, $2 the time, $3 statuses or NULL, $4 severities or NULL, $5 actors or NULL, $6 to $9 those
-- after the finding with this severity, changed at this time, with this key and raise, or NULL,
-- $10 most.
WITH looked_at (key, number) AS (
    SELECT kept.finding_key, kept.raise_no
    FROM unnest(
        coalesce($3::text[], ARRAY['active', 'cleared', 'expired', 'superseded'])
    ) AS of (status)
    CROSS JOIN LATERAL (
        SELECT finding_key, raise_no
        FROM findings
        WHERE stack = $1 AND status = of.status
            AND updated_at <= $2 AND coalesce(superseded_at <= $2, true)
            AND ($4::severity[] IS NULL OR severity = ANY($4))
            AND ($5::text[] IS NULL OR actor_id = ANY($5))
            AND (
                $6::severity IS NULL
                OR (severity, updated_at, finding_key, raise_no)
                    < ($6, $7::timestamptz, $8::text, $9::bigint)  -- way
            )
        ORDER BY severity DESC, updated_at DESC, finding_key DESC, raise_no DESC  -- way
        LIMIT $10
    ) AS kept
    UNION ALL
    SELECT finding_key, raise_no
    FROM findings
    WHERE stack = $1 AND raised_at <= $2
        AND (updated_at > $2 OR superseded_at > $2)  -- guard: changed-since-looked-at
)
SELECT then_.*
FROM looked_at
CROSS JOIN LATERAL (
    SELECT *
    FROM findings_at($1, $2) AS each
    WHERE each.finding_key = looked_at.key AND each.raise_no = looked_at.number
    LIMIT 1  -- So that each is looked up by its key.
) AS then_
WHERE ($3::text[] IS NULL OR status = ANY($3))
    AND ($4::severity[] IS NULL OR severity = ANY($4))
    AND ($5::text[] IS NULL OR actor_id = ANY($5))
    AND (
        $6::severity IS NULL
        OR (severity, updated_at, finding_key, raise_no)
            < ($6, $7::timestamptz, $8::text, $9::bigint)  -- way
    )
ORDER BY severity DESC, updated_at DESC, finding_key DESC, raise_no DESC  -- way
LIMIT $10
