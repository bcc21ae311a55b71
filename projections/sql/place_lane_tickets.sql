-- Episodes that got a place in a lane, and whether their turn has come since.
-- $1 stack, $2 rows as JSON (projections/lanes.py, Placed).
INSERT INTO lane_tickets (
    stack, actor_id, episode_id, journal_seq, expectation_id, number, priority, lane_key, state
)
SELECT $1, placed.*
FROM json_to_recordset($2::json) AS placed (
    actor_id text, episode_id uuid, journal_seq bigint, expectation_id text, number bigint,
    priority bigint, lane_key text, state text
)
ON CONFLICT (stack, actor_id, episode_id) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    expectation_id = excluded.expectation_id,
    number = excluded.number,
    priority = excluded.priority,
    lane_key = excluded.lane_key,
    state = excluded.state
