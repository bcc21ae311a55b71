-- Whose episodes have ended, each once: from one to the next by the index, as they are few.
-- $1 stack.
WITH RECURSIVE whose (name) AS (
    (
        SELECT actor_id FROM episodes
        WHERE stack = $1 AND finished_at IS NOT NULL
        ORDER BY actor_id
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT next.actor_id FROM episodes AS next
        WHERE next.stack = $1 AND next.finished_at IS NOT NULL
            AND next.actor_id > whose.name
        ORDER BY next.actor_id
        LIMIT 1
    )
    FROM whose
    WHERE whose.name IS NOT NULL
)
SELECT name AS actor_id FROM whose WHERE name IS NOT NULL
