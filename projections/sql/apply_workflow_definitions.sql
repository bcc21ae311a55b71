-- Definitions of workflows as they were last applied, with what followed as far as it is known.
-- Of a row that is there, stays when the first one was applied.
-- $1 stack, $2 rows as JSON (projections/definitions.py, Applied).
INSERT INTO workflow_definitions (
    stack, workflow_id, journal_seq, revision, triggers, subject_key, steps, definition,
    applied_at, applied_by, applied_reason, first_applied_at, disabled_at, disabled_by,
    disabled_reason
)
SELECT
    $1, workflow_id, journal_seq, revision, triggers, subject_key, coalesce(steps, '{}'),
    definition, applied_at, applied_by, applied_reason, first_applied_at, disabled_at,
    disabled_by, disabled_reason
FROM json_to_recordset($2::json) AS applied (
    workflow_id text, journal_seq bigint, revision bigint, triggers jsonb, subject_key text, steps text[],
    definition jsonb, applied_at timestamptz, applied_by text, applied_reason text,
    first_applied_at timestamptz, disabled_at timestamptz, disabled_by text,
    disabled_reason text
)
ON CONFLICT (stack, workflow_id) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    revision = excluded.revision,
    triggers = excluded.triggers,
    subject_key = excluded.subject_key,
    steps = excluded.steps,
    definition = excluded.definition,
    applied_at = excluded.applied_at,
    applied_by = excluded.applied_by,
    applied_reason = excluded.applied_reason,
    disabled_at = excluded.disabled_at,
    disabled_by = excluded.disabled_by,
    disabled_reason = excluded.disabled_reason
