-- The fence: moves a checkpoint only from where we left it, and wakes who waits for it.
-- Says nothing when someone else has moved it.
-- $1 stack, $2 projection, $3 from, $4 to, $5 mark, $6 now.
WITH moved AS (
    UPDATE projection_checkpoints SET
        journal_seq = $4::bigint, mark = $5, trouble = NULL, updated_at = $6::timestamptz
    WHERE stack = $1 AND projection = $2 AND journal_seq = $3::bigint
    RETURNING journal_seq
)
SELECT pg_notify('vigil_projected', '') FROM moved
