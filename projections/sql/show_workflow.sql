-- One instance of a workflow. $1 stack, $2 instance.
SELECT
    instance.instance_id, instance.workflow_id, overview.status, instance.mode,
    instance.definition_revision, instance.trigger_type, instance.trigger_ref,
    instance.subject_value, instance.dedupe_key, instance.steps, instance.parent_instance_id,
    instance.parent_step_id, instance.depth, instance.error_class, instance.error_detail,
    instance.failed_step, instance.canceled_by, instance.cancel_reason, instance.not_undone,
    instance.started_at, instance.updated_at, instance.finished_at, instance.journal_seq,
    instance.budget_usd, instance.spent_usd
FROM workflow_instances AS instance
JOIN workflows AS overview USING (stack, instance_id)
WHERE instance.stack = $1 AND instance.instance_id = $2
