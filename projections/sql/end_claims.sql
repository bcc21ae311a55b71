-- Claims that were given up or lapsed; of one we never saw held, that is all we know.
-- $1 stack, $2 rows as JSON (projections/claims.py, Ended).
INSERT INTO work_claims (
    stack, dedupe_key, journal_seq, fence, work_type, state, error_detail, finished_at
)
SELECT $1, dedupe_key, fence, fence, work_type, state, error_detail, finished_at
FROM json_to_recordset($2::json) AS ended (
    dedupe_key text, fence bigint, work_type text, state text, error_detail text,
    finished_at timestamptz
)
ON CONFLICT (stack, dedupe_key) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    fence = excluded.fence,
    work_type = excluded.work_type,
    state = excluded.state,
    error_detail = excluded.error_detail,
    finished_at = excluded.finished_at
