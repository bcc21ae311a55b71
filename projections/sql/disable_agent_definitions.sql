-- Definitions of actors that hold no longer.
-- $1 stack, $2 rows as JSON (projections/definitions.py, Standing).
UPDATE agent_definitions AS definition SET
    journal_seq = disabled.journal_seq,
    disabled_at = disabled.disabled_at,
    disabled_by = disabled.disabled_by,
    disabled_reason = disabled.disabled_reason
FROM json_to_recordset($2::json) AS disabled (
    actor_id text, journal_seq bigint, disabled_at timestamptz, disabled_by text,
    disabled_reason text
)
WHERE definition.stack = $1 AND definition.actor_id = disabled.actor_id
