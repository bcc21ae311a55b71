-- The episode that was opened last. An episode that was opened after the one that started last was
-- opened, has started after that moment, or not yet. $1 stack.
WITH started_last AS (
    SELECT queued_at
    FROM episodes
    WHERE stack = $1 AND started_at IS NOT NULL
    ORDER BY started_at DESC, queued_at DESC
    LIMIT 1
)
SELECT episode_id
FROM (
    SELECT episode_id, queued_at
    FROM episodes
    -- guard: latest-started-last
    WHERE stack = $1 AND started_at >= (SELECT queued_at FROM started_last)
    UNION ALL
    (
        SELECT episode_id, queued_at
        FROM episodes
        WHERE stack = $1 AND started_at IS NULL  -- guard: waiting-may-be-latest
        ORDER BY queued_at DESC
        LIMIT 1
    )
) AS newest
ORDER BY queued_at DESC
LIMIT 1
