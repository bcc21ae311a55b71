-- How many of the episodes that fit and were opened last before a time had each status then, and
-- whether there are more than were looked at.
-- $1 stack, $2 the time, $3 actors or NULL, $4 expectation or NULL, $5 most.
SELECT status, count(*) AS episodes, bool_or(looked_at >= $5) AS is_more
FROM (
    SELECT newest.status, count(*) OVER () AS looked_at
    FROM (
        SELECT status
        FROM episodes_at($1, $2)
        WHERE ($3::text[] IS NULL OR actor_id = ANY($3))
            AND ($4::text IS NULL OR expectation_id = $4)
        ORDER BY queued_at DESC, episode_id DESC
        LIMIT $5
    ) AS newest
) AS counted
GROUP BY status
ORDER BY status
