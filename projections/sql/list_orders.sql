-- Orders of people, the latest first. $1 stack, $2 node or NULL, $3 actor or NULL, $4 most.
SELECT
    order_key, change, node, actor_id, expectation_id, mode, partitions, at, person, reason,
    journal_seq
FROM orders
WHERE stack = $1
    AND ($2::text IS NULL OR node = $2)
    AND ($3::text IS NULL OR actor_id = $3)
ORDER BY at DESC, journal_seq DESC, event_no DESC
LIMIT $4
