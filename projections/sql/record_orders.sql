-- Orders of people.
-- $1 stack, $2 rows as JSON (projections/orders.py, OrderRow).
INSERT INTO orders (
    stack, order_key, journal_seq, event_no, change, at, person, reason, node, actor_id,
    expectation_id, mode, partitions
)
SELECT $1, given.*
FROM json_to_recordset($2::json) AS given (
    order_key text, journal_seq bigint, event_no bigint, change text, at timestamptz, person text,
    reason text, node text, actor_id text, expectation_id text, mode text, partitions bigint
)
ON CONFLICT (stack, order_key, journal_seq, event_no) DO UPDATE SET
    change = excluded.change,
    at = excluded.at,
    person = excluded.person,
    reason = excluded.reason,
    node = excluded.node,
    actor_id = excluded.actor_id,
    expectation_id = excluded.expectation_id,
    mode = excluded.mode,
    partitions = excluded.partitions
