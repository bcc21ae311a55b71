-- The times that rows are cut off by.
-- $1 stack, $2 rows as JSON (projections/orders.py, CutRow).
INSERT INTO retention_cuts (stack, what, actor_id, journal_seq, before)
SELECT $1, cut.*
FROM json_to_recordset($2::json) AS cut (
    what text, actor_id text, journal_seq bigint, before timestamptz
)
ON CONFLICT (stack, what, actor_id) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    before = excluded.before
