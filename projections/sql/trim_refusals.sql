-- Deletes the refusals of some expectations that are not among their newest.
-- $1 stack, $2 rows as JSON (projections/refusals.py, TrimmedRefusals).
DELETE FROM refusals
USING json_to_recordset($2::json) AS trimmed (
    actor_id text, expectation_id text, rows_max bigint
)
WHERE
    refusals.stack = $1
    AND refusals.actor_id = trimmed.actor_id
    AND refusals.expectation_id = trimmed.expectation_id
    AND refusals.refused_at < (
        SELECT newest.refused_at
        FROM refusals AS newest
        WHERE
            newest.stack = $1
            AND newest.actor_id = trimmed.actor_id
            AND newest.expectation_id = trimmed.expectation_id
        ORDER BY newest.refused_at DESC
        OFFSET trimmed.rows_max - 1
        LIMIT 1
    )
