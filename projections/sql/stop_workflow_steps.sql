-- Items that had not begun when their instance stopped.
-- $1 stack, $2 rows as JSON (projections/workflows.py, StoppedItems).
UPDATE workflow_steps AS step SET
    journal_seq = stopped.journal_seq,
    status = 'canceled',
    retry_at = NULL,
    decided_at = CASE step.status WHEN 'awaiting_approval' THEN stopped.at ELSE step.decided_at END,
    resumed_at = CASE step.status WHEN 'paused' THEN stopped.at ELSE step.resumed_at END
FROM json_to_recordset($2::json) AS stopped (instance_id uuid, journal_seq bigint, at timestamptz)
WHERE step.stack = $1 AND step.instance_id = stopped.instance_id
    AND step.status IN ('pending', 'awaiting_approval', 'retrying', 'paused')
    AND step.journal_seq < stopped.journal_seq
