-- Why events did not fire. A row that is there is the same.
-- $1 stack, $2 rows as JSON (projections/refusals.py, RefusalState).
INSERT INTO refusals (
    stack, journal_seq, event_id, event, actor_id, expectation_id, subject_id, refused_at, node,
    reason, compared_with, against
)
SELECT
    $1, journal_seq, event_id, event, actor_id, expectation_id, subject_id, refused_at, node,
    reason, compared_with, against
FROM json_to_recordset($2::json) AS added (
    journal_seq bigint, event_id text, event text, actor_id text, expectation_id text,
    subject_id text, refused_at timestamptz, node text, reason text, compared_with text,
    against jsonb
)
ON CONFLICT DO NOTHING
