-- Whose outputs have ended, each once: from one to the next by the index, as they are few.
-- $1 stack.
WITH RECURSIVE whose (name) AS (
    (
        SELECT actor_id FROM outputs
        WHERE stack = $1 AND status IN ('delivered', 'failed', 'rejected', 'canceled')
        ORDER BY actor_id
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT next.actor_id FROM outputs AS next
        WHERE next.stack = $1 AND next.status IN ('delivered', 'failed', 'rejected', 'canceled')
            AND next.actor_id > whose.name
        ORDER BY next.actor_id
        LIMIT 1
    )
    FROM whose
    WHERE whose.name IS NOT NULL
)
SELECT name AS actor_id FROM whose WHERE name IS NOT NULL
