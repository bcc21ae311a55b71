-- Checkpoints of episodes.
-- $1 stack, then one array per column (projections/episodes.py, Checkpoint).
INSERT INTO episode_checkpoints (
    stack, episode_id, checkpoint_no, journal_seq, step_no, phase, schema_version,
    state_size_bytes, created_at
)
SELECT $1, saved.*
FROM unnest(
    $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[],
    $8::bigint[], $9::timestamptz[]
) AS saved
ON CONFLICT (stack, episode_id, checkpoint_no) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    step_no = excluded.step_no,
    phase = excluded.phase,
    schema_version = excluded.schema_version,
    state_size_bytes = excluded.state_size_bytes,
    created_at = excluded.created_at
