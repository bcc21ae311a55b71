-- Claims that were taken, and how they ended if they have.
-- $1 stack, $2 rows as JSON (projections/claims.py, Taken).
INSERT INTO work_claims (
    stack, dedupe_key, journal_seq, fence, work_type, state, owner_node, attempt, claimed_at,
    last_heartbeat_at, lease_until, finished_at, error_detail
)
SELECT
    $1, dedupe_key, fence, fence, work_type, state, owner_node, attempt, claimed_at,
    last_heartbeat_at, lease_until, finished_at, error_detail
FROM json_to_recordset($2::json) AS taken (
    dedupe_key text, fence bigint, work_type text, state text, owner_node text,
    attempt bigint, claimed_at timestamptz, last_heartbeat_at timestamptz,
    lease_until timestamptz, finished_at timestamptz, error_detail text
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
    finished_at = excluded.finished_at,
    error_detail = excluded.error_detail
