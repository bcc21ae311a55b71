-- How what episodes wait for was answered.
-- $1 stack, $2 rows as JSON (projections/episodes.py, Answer).
UPDATE episode_blocks AS block SET
    journal_seq = answer.journal_seq,
    resolution = answer.resolution,
    resolved_by = answer.resolved_by,
    resolved_reason = answer.resolved_reason,
    decision_id = answer.decision_id,
    resolved_at = answer.resolved_at,
    edited_hash = answer.edited_hash,
    acting_episode_id = answer.acting_episode_id
FROM json_to_recordset($2::json) AS answer (
    episode_id uuid, step_no bigint, journal_seq bigint, resolution text, resolved_by text,
    resolved_reason text, decision_id text, resolved_at timestamptz, edited_hash text,
    acting_episode_id uuid
)
WHERE block.stack = $1
    AND block.episode_id = answer.episode_id
    AND block.step_no = answer.step_no
