-- The expectations that episodes of a stack are of, with their actors, in order. $2 most.
-- Each row is found by the index from the one before it, however many episodes there are.
WITH RECURSIVE named AS (
    (
        SELECT actor_id, expectation_id
        FROM episodes
        WHERE stack = $1
        ORDER BY actor_id, expectation_id
        LIMIT 1
    )
    UNION ALL
    SELECT next.actor_id, next.expectation_id
    FROM named
    CROSS JOIN LATERAL (
        SELECT actor_id, expectation_id
        FROM episodes
        WHERE stack = $1
            AND (actor_id, expectation_id) > (named.actor_id, named.expectation_id)
        ORDER BY actor_id, expectation_id
        LIMIT 1
    ) AS next
)
SELECT actor_id, expectation_id
FROM named
LIMIT $2
