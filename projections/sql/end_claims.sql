-- Claims that were given up or lapsed; of one we never saw held, that is all we know.
-- $1 stack, then one array per column (projections/claims.py, Ended).
INSERT INTO work_claims (
    stack, dedupe_key, journal_seq, fence, work_type, state, error_detail, finished_at
)
SELECT $1, dedupe_key, fence, fence, work_type, state, error_detail, finished_at
FROM unnest(
    $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::timestamptz[]
) AS ended (dedupe_key, fence, work_type, state, error_detail, finished_at)
ON CONFLICT (stack, dedupe_key) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    fence = excluded.fence,
    work_type = excluded.work_type,
    state = excluded.state,
    error_detail = excluded.error_detail,
    finished_at = excluded.finished_at
