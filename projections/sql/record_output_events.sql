-- The history of outputs.
-- $1 stack, $2 rows as JSON (projections/outputs.py, Happened).
INSERT INTO output_events (
    stack, output_key, journal_seq, event_no, kind, at, proposal_no, episode_id, attempt, node,
    person, reason, error_class, error_detail, next_attempt_at, delivered_ref, status
)
SELECT $1, happened.*
FROM json_to_recordset($2::json) AS happened (
    output_key text, journal_seq bigint, event_no bigint, kind text, at timestamptz,
    proposal_no bigint, episode_id uuid, attempt bigint, node text, person text, reason text,
    error_class text, error_detail text, next_attempt_at timestamptz, delivered_ref text,
    status text
)
-- guard: event-of-known-output
WHERE EXISTS (
    SELECT FROM outputs AS whole
    WHERE whole.stack = $1 AND whole.output_key = happened.output_key
)
ON CONFLICT (stack, output_key, journal_seq, event_no) DO UPDATE SET
    kind = excluded.kind,
    at = excluded.at,
    proposal_no = excluded.proposal_no,
    episode_id = excluded.episode_id,
    attempt = excluded.attempt,
    node = excluded.node,
    person = excluded.person,
    reason = excluded.reason,
    error_class = excluded.error_class,
    error_detail = excluded.error_detail,
    next_attempt_at = excluded.next_attempt_at,
    delivered_ref = excluded.delivered_ref,
    status = excluded.status
