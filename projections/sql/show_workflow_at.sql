-- One instance of a workflow as it was at a time. $1 stack, $2 instance, $3 the time.
SELECT
    instance.instance_id, instance.workflow_id, overview.status, instance.mode,
    instance.definition_revision, instance.trigger_type, instance.trigger_ref,
    instance.subject_value, instance.dedupe_key, instance.steps, instance.parent_instance_id,
    instance.parent_step_id, instance.depth, overview.error_class, overview.error_detail,
    overview.failed_step,
    CASE WHEN instance.stopping_at <= $3 THEN instance.canceled_by END AS canceled_by,
    CASE WHEN instance.stopping_at <= $3 THEN instance.cancel_reason END AS cancel_reason,
    CASE WHEN instance.finished_at <= $3 THEN instance.not_undone ELSE '{}' END AS not_undone,
    instance.started_at, overview.updated_at, overview.finished_at, instance.journal_seq,
    instance.budget_usd, overview.spent_usd
FROM workflow_instances AS instance
JOIN workflows_at($1, $3) AS overview USING (instance_id)
WHERE instance.stack = $1 AND instance.instance_id = $2 AND overview.instance_id = $2
