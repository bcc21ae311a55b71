-- What could not be done. Reset to waiting when replayed over rows that exist.
-- $1 stack, then one array per column (projections/dead.py, Letter).
INSERT INTO dead_letters (
    stack, letter_key, journal_seq, reason, detail, source_stream, source_seq, source_subject,
    actor_id, episode_id, headers, payload, payload_size_bytes, lettered_at, status
)
SELECT $1, saved.*, 'waiting'
FROM unnest(
    $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[],
    $9::text[], $10::uuid[], $11::jsonb[], $12::bytea[], $13::bigint[], $14::timestamptz[]
) AS saved
ON CONFLICT (stack, letter_key) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    reason = excluded.reason,
    detail = excluded.detail,
    source_stream = excluded.source_stream,
    source_seq = excluded.source_seq,
    source_subject = excluded.source_subject,
    actor_id = excluded.actor_id,
    episode_id = excluded.episode_id,
    headers = excluded.headers,
    payload = excluded.payload,
    payload_size_bytes = excluded.payload_size_bytes,
    lettered_at = excluded.lettered_at,
    status = excluded.status,
    settled_at = NULL,
    settled_by = NULL,
    settled_note = NULL
