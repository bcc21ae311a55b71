-- How many of the newest episodes of each status fit, and whether there are more than were looked at.
-- $1 stack, $2 statuses, $3 actors or NULL, $4 expectation or NULL, $5 most of each status.
SELECT of.status, newest.fitting AS episodes, newest.looked_at >= $5 AS is_more
FROM unnest($2::text[]) AS of (status)
CROSS JOIN LATERAL (
    SELECT
        count(*) AS looked_at,
        count(*) FILTER (
            WHERE ($3::text[] IS NULL OR each.actor_id = ANY($3))
                AND ($4::text IS NULL OR each.expectation_id = $4)
        ) AS fitting
    FROM (
        SELECT actor_id, expectation_id
        FROM episodes
        WHERE stack = $1 AND status = of.status
        ORDER BY started_at DESC, queued_at DESC
        LIMIT $5
    ) AS each
) AS newest
