-- Items that were paused before a person said what is done about them.
-- $1 stack, $2 rows as JSON (projections/workflows.py, ResumedItems).
UPDATE workflow_steps AS step SET
    journal_seq = resumed.journal_seq,
    status = resumed.status,
    resumed_at = resumed.at
FROM json_to_recordset($2::json) AS resumed (
    instance_id uuid, step_id text, journal_seq bigint, status text, at timestamptz
)
WHERE step.stack = $1 AND step.instance_id = resumed.instance_id
    AND step.step_id = resumed.step_id AND step.status = 'paused'
    AND step.journal_seq < resumed.journal_seq
