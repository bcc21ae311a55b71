-- Claims that are held.
-- $1 stack, then one array per column (projections/claims.py, Taken).
INSERT INTO work_claims (
    stack, dedupe_key, journal_seq, fence, work_type, state, owner_node, attempt, claimed_at,
    last_heartbeat_at, lease_until
)
SELECT
    $1, dedupe_key, fence, fence, work_type, 'claimed', owner_node, attempt, claimed_at,
    last_heartbeat_at, lease_until
FROM unnest(
    $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::timestamptz[],
    $8::timestamptz[], $9::timestamptz[]
) AS taken (
    dedupe_key, fence, work_type, owner_node, attempt, claimed_at, last_heartbeat_at,
    lease_until
)
ON CONFLICT (stack, dedupe_key) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    fence = excluded.fence,
    work_type = excluded.work_type,
    state = excluded.state,
    owner_node = excluded.owner_node,
    attempt = excluded.attempt,
    claimed_at = excluded.claimed_at,
    last_heartbeat_at = excluded.last_heartbeat_at,
    lease_until = excluded.lease_until,
    finished_at = NULL,
    error_detail = NULL
