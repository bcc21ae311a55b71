-- The history of definitions.
-- $1 stack, $2 rows as JSON (projections/definitions.py, Happened).
INSERT INTO definition_history (
    stack, kind, definition_id, journal_seq, event_no, change, revision, definition, at, person,
    reason
)
SELECT $1, happened.*
FROM json_to_recordset($2::json) AS happened (
    kind text, definition_id text, journal_seq bigint, event_no bigint, change text,
    revision bigint, definition jsonb, at timestamptz, person text, reason text
)
ON CONFLICT (stack, kind, definition_id, journal_seq, event_no) DO UPDATE SET
    change = excluded.change,
    revision = excluded.revision,
    definition = excluded.definition,
    at = excluded.at,
    person = excluded.person,
    reason = excluded.reason
