-- Dead letters, the latest first. $1 stack, $2 status or NULL, $3 most.
SELECT
    letter_key, status, reason, detail, actor_id, episode_id, output_key, source_stream, source_seq,
    source_subject, payload_size_bytes, lettered_at, settled_at, settled_by, settled_note,
    journal_seq
FROM dead_letters
WHERE stack = $1 AND ($2::text IS NULL OR status = $2)
ORDER BY lettered_at DESC, journal_seq DESC
LIMIT $3
