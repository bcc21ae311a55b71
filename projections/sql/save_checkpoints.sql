-- Checkpoints of episodes.
-- $1 stack, $2 rows as JSON (projections/episodes.py, Checkpoint).
INSERT INTO episode_checkpoints (
    stack, episode_id, checkpoint_no, journal_seq, step_no, phase, schema_version,
    state_size_bytes, created_at
)
SELECT $1, saved.*
FROM json_to_recordset($2::json) AS saved (
    episode_id uuid, checkpoint_no bigint, journal_seq bigint, step_no bigint, phase text,
    schema_version bigint, state_size_bytes bigint, created_at timestamptz
)
-- guard: checkpoint-of-known-episode
WHERE EXISTS (
    SELECT FROM episodes AS whole
    WHERE whole.stack = $1 AND whole.episode_id = saved.episode_id
)
ON CONFLICT (stack, episode_id, checkpoint_no) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    step_no = excluded.step_no,
    phase = excluded.phase,
    schema_version = excluded.schema_version,
    state_size_bytes = excluded.state_size_bytes,
    created_at = excluded.created_at
