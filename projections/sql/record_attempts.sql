-- Starts of episodes after the first one.
-- $1 stack, $2 rows as JSON (projections/episodes.py, Attempted).
INSERT INTO episode_attempts (
    stack, episode_id, attempt, journal_seq, node, started_at, is_fresh
)
SELECT $1, episode_id, attempt, journal_seq, node, started_at, coalesce(is_fresh, false)
FROM json_to_recordset($2::json) AS attempted (
    episode_id uuid, attempt bigint, journal_seq bigint, node text, started_at timestamptz,
    is_fresh boolean
)
-- guard: attempt-of-known-episode
WHERE EXISTS (
    SELECT FROM episodes AS whole
    WHERE whole.stack = $1 AND whole.episode_id = attempted.episode_id
)
ON CONFLICT (stack, episode_id, attempt) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    node = excluded.node,
    started_at = excluded.started_at,
    is_fresh = excluded.is_fresh
