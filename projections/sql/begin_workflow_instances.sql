-- Instances as they began, with what followed as far as it is known. Reset to that when replayed
-- over rows that exist.
-- $1 stack, $2 rows as JSON (projections/workflows.py, BegunInstance).
INSERT INTO workflow_instances (
    stack, instance_id, journal_seq, workflow_id, status, mode, trigger_type, trigger_ref,
    subject_value, dedupe_key, steps, parent_instance_id, parent_step_id, depth, error_class,
    error_detail, failed_step, canceled_by, cancel_reason, not_undone, started_at, updated_at,
    finished_at, definition_revision, budget_usd, spent_usd, stopping_at, compensating_at
)
SELECT
    $1, instance_id, journal_seq, workflow_id, status, mode, trigger_type, trigger_ref,
    subject_value, dedupe_key, steps, parent_instance_id, parent_step_id, depth, error_class,
    error_detail, failed_step, canceled_by, cancel_reason, coalesce(not_undone, '{}'), started_at,
    updated_at, finished_at, definition_revision, budget_usd, coalesce(spent_usd, 0),
    stopping_at, compensating_at
FROM json_to_recordset($2::json) AS begun (
    instance_id uuid, journal_seq bigint, workflow_id text, status text, mode text,
    trigger_type text, trigger_ref jsonb, subject_value text, dedupe_key text, steps jsonb,
    parent_instance_id uuid, parent_step_id text, depth bigint, error_class text,
    error_detail text, failed_step text, canceled_by text, cancel_reason text, not_undone text[],
    started_at timestamptz, updated_at timestamptz, finished_at timestamptz,
    definition_revision bigint, budget_usd numeric, spent_usd numeric, stopping_at timestamptz,
    compensating_at timestamptz
)
ON CONFLICT (stack, instance_id) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    workflow_id = excluded.workflow_id,
    status = excluded.status,
    mode = excluded.mode,
    trigger_type = excluded.trigger_type,
    trigger_ref = excluded.trigger_ref,
    subject_value = excluded.subject_value,
    dedupe_key = excluded.dedupe_key,
    steps = excluded.steps,
    parent_instance_id = excluded.parent_instance_id,
    parent_step_id = excluded.parent_step_id,
    depth = excluded.depth,
    error_class = excluded.error_class,
    error_detail = excluded.error_detail,
    failed_step = excluded.failed_step,
    canceled_by = excluded.canceled_by,
    cancel_reason = excluded.cancel_reason,
    not_undone = excluded.not_undone,
    started_at = excluded.started_at,
    updated_at = excluded.updated_at,
    finished_at = excluded.finished_at,
    definition_revision = excluded.definition_revision,
    budget_usd = excluded.budget_usd,
    spent_usd = excluded.spent_usd,
    stopping_at = excluded.stopping_at,
    compensating_at = excluded.compensating_at
