-- Sets where a projection goes on, and wakes who waits for it. One that is moved is fenced: whoever
-- has written from where it was writes no more.
-- $1 stack, $2 projection, $3 position, $4 mark, $5 now.
WITH moved AS (
    INSERT INTO projection_checkpoints (stack, projection, journal_seq, mark, updated_at)
    VALUES ($1, $2, $3::bigint, $4, $5::timestamptz)
    ON CONFLICT (stack, projection) DO UPDATE SET
        journal_seq = excluded.journal_seq,
        mark = excluded.mark,
        trouble = NULL,
        updated_at = excluded.updated_at
    RETURNING journal_seq
)
SELECT pg_notify('vigil_projected', '') FROM moved
