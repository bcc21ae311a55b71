-- What people hold, or no longer do.
-- $1 stack, $2 rows as JSON (projections/orders.py, HoldRow).
INSERT INTO retention_holds (stack, kind, held, journal_seq, is_held, at, person, reason)
SELECT $1, hold.*
FROM json_to_recordset($2::json) AS hold (
    kind text, held text, journal_seq bigint, is_held boolean, at timestamptz, person text,
    reason text
)
ON CONFLICT (stack, kind, held) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    is_held = excluded.is_held,
    at = excluded.at,
    person = excluded.person,
    reason = excluded.reason
