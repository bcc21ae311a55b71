-- Deletes the oldest refusals that are too old, and not all of them at once.
-- $1 stack, $2 rows as JSON, one of them (projections/refusals.py, ForgottenRefusals).
DELETE FROM refusals
WHERE
    stack = $1
    AND (journal_seq, refused_at) IN (
        SELECT refusal.journal_seq, refusal.refused_at
        FROM refusals AS refusal
        WHERE
            refusal.stack = $1
            AND refusal.refused_at < (
                SELECT before FROM json_to_recordset($2::json) AS forgotten (before timestamptz)
            )
        ORDER BY refusal.refused_at
        LIMIT (SELECT rows_max FROM json_to_recordset($2::json) AS forgotten (rows_max bigint))
    )
