-- What happened to instances after their beginning. NULL leaves a column as it is.
-- $1 stack, $2 rows as JSON (projections/workflows.py, InstanceProgress).
UPDATE workflow_instances AS instance SET
    journal_seq = advance.journal_seq,
    updated_at = advance.updated_at,
    status = coalesce(advance.status, instance.status),
    error_class = coalesce(advance.error_class, instance.error_class),
    error_detail = coalesce(advance.error_detail, instance.error_detail),
    failed_step = coalesce(advance.failed_step, instance.failed_step),
    canceled_by = coalesce(advance.canceled_by, instance.canceled_by),
    cancel_reason = coalesce(advance.cancel_reason, instance.cancel_reason),
    not_undone = coalesce(advance.not_undone, instance.not_undone),
    finished_at = coalesce(advance.finished_at, instance.finished_at),
    spent_usd = coalesce(advance.spent_usd, instance.spent_usd),
    stopping_at = coalesce(instance.stopping_at, advance.stopping_at),
    compensating_at = coalesce(instance.compensating_at, advance.compensating_at)
FROM json_to_recordset($2::json) AS advance (
    instance_id uuid, journal_seq bigint, updated_at timestamptz, status text, error_class text,
    error_detail text, failed_step text, canceled_by text, cancel_reason text, not_undone text[],
    finished_at timestamptz, spent_usd numeric, stopping_at timestamptz,
    compensating_at timestamptz
)
WHERE instance.stack = $1 AND instance.instance_id = advance.instance_id
