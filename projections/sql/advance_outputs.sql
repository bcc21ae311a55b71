-- What happened to outputs after their proposal. The time of the next attempt and the error are
-- as the last event says; a decision and a delivery are taken whole; otherwise NULL leaves a
-- column as it is.
-- $1 stack, $2 rows as JSON (projections/outputs.py, Progress).
UPDATE outputs AS output SET
    journal_seq = advance.journal_seq,
    updated_at = advance.updated_at,
    status = advance.status,
    next_attempt_at = advance.next_attempt_at,
    error_class = advance.error_class,
    error_detail = advance.error_detail,
    attempts = coalesce(advance.attempts, output.attempts),
    resolution = coalesce(advance.resolution, output.resolution),
    decided_by = CASE
        WHEN advance.resolution IS NULL THEN output.decided_by ELSE advance.decided_by
    END,
    decided_reason = CASE
        WHEN advance.resolution IS NULL THEN output.decided_reason ELSE advance.decided_reason
    END,
    decision_id = CASE
        WHEN advance.resolution IS NULL THEN output.decision_id ELSE advance.decision_id
    END,
    decided_at = coalesce(advance.decided_at, output.decided_at),
    expires_at = coalesce(advance.expires_at, output.expires_at),
    delivered_ref = CASE
        WHEN advance.delivered_at IS NULL THEN output.delivered_ref ELSE advance.delivered_ref
    END,
    delivered_at = coalesce(advance.delivered_at, output.delivered_at),
    canceled_at = coalesce(advance.canceled_at, output.canceled_at)
FROM json_to_recordset($2::json) AS advance (
    output_key text, journal_seq bigint, updated_at timestamptz, status text,
    next_attempt_at timestamptz, error_class text, error_detail text, attempts bigint,
    resolution text, decided_by text, decided_reason text, decision_id text,
    decided_at timestamptz, expires_at timestamptz, delivered_ref text, delivered_at timestamptz,
    canceled_at timestamptz
)
WHERE output.stack = $1 AND output.output_key = advance.output_key
