-- What happened to outputs after their proposal. The time of the next attempt and the error are
-- as the last event says; a decision and a delivery are taken whole, as is that there is no
-- decision any more once people are asked again; otherwise NULL leaves a column as it is.
-- $1 stack, $2 rows as JSON (projections/outputs.py, Progress).
UPDATE outputs AS output SET
    journal_seq = advance.journal_seq,
    updated_at = advance.updated_at,
    status = advance.status,
    -- guard: edited-output-in-row
    payload = CASE WHEN advance.edited IS NULL THEN output.payload ELSE advance.edited -> 0 END,
    next_attempt_at = advance.next_attempt_at,
    error_class = advance.error_class,
    error_detail = advance.error_detail,
    attempts = coalesce(advance.attempts, output.attempts),
    asked_at = coalesce(advance.asked_at, output.asked_at),  -- guard: asked-at-latest
    resolution = CASE WHEN advance.decides THEN advance.resolution ELSE output.resolution END,
    decided_by = CASE WHEN advance.decides THEN advance.decided_by ELSE output.decided_by END,
    decided_reason = CASE
        WHEN advance.decides THEN advance.decided_reason ELSE output.decided_reason
    END,
    decision_id = CASE WHEN advance.decides THEN advance.decision_id ELSE output.decision_id END,
    decided_at = CASE WHEN advance.decides THEN advance.decided_at ELSE output.decided_at END,
    edited_hash = CASE WHEN advance.decides THEN advance.edited_hash ELSE output.edited_hash END,
    expires_at = coalesce(advance.expires_at, output.expires_at),
    payload_hash = coalesce(advance.payload_hash, output.payload_hash),
    approved_by = coalesce(advance.approved_by, output.approved_by),
    delivered_ref = CASE
        WHEN advance.delivered_at IS NULL THEN output.delivered_ref ELSE advance.delivered_ref
    END,
    delivered_at = coalesce(advance.delivered_at, output.delivered_at),
    canceled_at = coalesce(advance.canceled_at, output.canceled_at)
FROM (
    -- guard: asked-again-forgets-decision
    SELECT *, resolution IS NOT NULL OR asked_at IS NOT NULL AS decides
    FROM json_to_recordset($2::json) AS happened (
        output_key text, journal_seq bigint, updated_at timestamptz, status text,
        next_attempt_at timestamptz, error_class text, error_detail text, attempts bigint,
        asked_at timestamptz, resolution text, decided_by text, decided_reason text,
        decision_id text, decided_at timestamptz, expires_at timestamptz, delivered_ref text,
        delivered_at timestamptz, canceled_at timestamptz, edited jsonb,
        edited_hash text, payload_hash text, approved_by text[]
    )
) AS advance
WHERE output.stack = $1 AND output.output_key = advance.output_key
