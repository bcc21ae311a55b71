-- Moves a checkpoint to where its stream goes on, once a person has accepted what that has lost.
-- $1 stack, $2 projection, $3 to, $4 now.
UPDATE projection_checkpoints SET
    journal_seq = $3::bigint, mark = '', trouble = NULL, updated_at = $4::timestamptz
WHERE stack = $1 AND projection = $2
