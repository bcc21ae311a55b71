-- How many findings there are with each status, by the index of the list.
-- $1 stack, $2 severities or NULL, $3 actors or NULL, $4 most of each status that are counted, or NULL.
SELECT of.status, counted.findings
FROM unnest(ARRAY['active', 'cleared', 'expired', 'superseded']) AS of (status)
CROSS JOIN LATERAL (
    SELECT count(*) AS findings
    FROM (
        SELECT
        FROM findings
        WHERE stack = $1 AND status = of.status
            AND ($2::severity[] IS NULL OR severity = ANY($2))
            AND ($3::text[] IS NULL OR actor_id = ANY($3))
        ORDER BY severity DESC, updated_at DESC  -- So that the index is what is read.
        LIMIT $4
    ) AS fitting
) AS counted
WHERE counted.findings > 0
ORDER BY of.status
