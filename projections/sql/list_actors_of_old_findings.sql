-- Whose findings have ended, each once: from one to the next by the index, as they are few.
-- $1 stack.
WITH RECURSIVE whose (name) AS (
    (
        SELECT actor_id FROM findings
        WHERE stack = $1 AND status <> 'active'
        ORDER BY actor_id
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT next.actor_id FROM findings AS next
        WHERE next.stack = $1 AND next.status <> 'active'
            AND next.actor_id > whose.name
        ORDER BY next.actor_id
        LIMIT 1
    )
    FROM whose
    WHERE whose.name IS NOT NULL
)
SELECT name AS actor_id FROM whose WHERE name IS NOT NULL
