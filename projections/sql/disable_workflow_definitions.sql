-- Definitions of workflows that hold no longer.
-- $1 stack, $2 rows as JSON (projections/definitions.py, Standing).
UPDATE workflow_definitions AS definition SET
    journal_seq = disabled.journal_seq,
    disabled_at = disabled.disabled_at,
    disabled_by = disabled.disabled_by,
    disabled_reason = disabled.disabled_reason
FROM json_to_recordset($2::json) AS disabled (
    workflow_id text, journal_seq bigint, disabled_at timestamptz, disabled_by text,
    disabled_reason text
)
WHERE definition.stack = $1 AND definition.workflow_id = disabled.workflow_id
