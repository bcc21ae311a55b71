-- The episode that was opened last, of the one that started last and those not started yet.
-- $1 stack.
SELECT episode_id
FROM (
    (
        SELECT episode_id, queued_at
        FROM episodes
        WHERE stack = $1 AND started_at IS NOT NULL
        ORDER BY started_at DESC, queued_at DESC
        LIMIT 1
    )
    UNION ALL
    (
        SELECT episode_id, queued_at
        FROM episodes
        WHERE stack = $1 AND started_at IS NULL
        ORDER BY queued_at DESC
        LIMIT 1
    )
) AS newest
ORDER BY queued_at DESC
LIMIT 1
