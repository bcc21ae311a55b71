-- Orders of people, the latest first.
-- $1 stack, $2 node or NULL, $3 actor or NULL, $4 to $7 those after the order that was given at this
-- time, in this commit, at this place in it, about this, or NULL, $8 most, $9 those given by this time,
-- or NULL.
SELECT
    order_key, change, node, actor_id, expectation_id, mode, partitions, at, person, reason,
    journal_seq, event_no
FROM orders
WHERE stack = $1
    AND ($2::text IS NULL OR node = $2)
    AND ($3::text IS NULL OR actor_id = $3)
    AND ($9::timestamptz IS NULL OR at <= $9)
    AND (
        $4::timestamptz IS NULL
        OR (at, journal_seq, event_no, order_key)
            < ($4, $5::bigint, $6::bigint, $7::text)  -- way
    )
ORDER BY at DESC, journal_seq DESC, event_no DESC, order_key DESC  -- way
LIMIT $8
