-- How many of the episodes that started since then have each status, by the span of time in which
-- they started. $1 stack, $2 since when, $3 the length of a span in seconds.
SELECT begun.since, begun.status, count(*) AS episodes
FROM (
    SELECT date_bin(make_interval(secs => $3), started_at, $2::timestamptz) AS since, status
    FROM episodes
    WHERE stack = $1 AND started_at >= $2
        AND ($4::text IS NULL OR actor_id = $4)
        AND ($5::text IS NULL OR expectation_id = $5)
    -- Or as many spans are expected as there are episodes, and all are sorted to be counted.
    OFFSET 0
) AS begun
GROUP BY 1, 2
ORDER BY 1, 2
