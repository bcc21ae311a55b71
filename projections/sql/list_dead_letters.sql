-- Dead letters, the latest first.
-- $1 stack, $2 statuses or NULL, $3 actors or NULL, $4 and $5 those after the letter that was written
-- at this time with this key, or NULL, $6 most.
SELECT
    letter_key, status, reason, detail, actor_id, episode_id, output_key, source_stream, source_seq,
    source_subject, payload_size_bytes, lettered_at, settled_at, settled_by, settled_note,
    journal_seq
FROM dead_letters
WHERE stack = $1
    AND ($2::text[] IS NULL OR status = ANY($2))
    AND ($3::text[] IS NULL OR actor_id = ANY($3))
    AND (
        $4::timestamptz IS NULL
        OR (lettered_at, letter_key) < ($4, $5::text)  -- way
    )
ORDER BY lettered_at DESC, letter_key DESC  -- way
LIMIT $6
