-- What could not be done.
-- $1 stack, then one array per column (projections/dead.py, Letter).
INSERT INTO dead_letters (
    stack, letter_key, journal_seq, reason, detail, source_stream, source_seq, source_subject,
    actor_id, headers, payload, payload_size_bytes, lettered_at
)
SELECT $1, saved.*
FROM unnest(
    $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[],
    $9::text[], $10::jsonb[], $11::bytea[], $12::bigint[], $13::timestamptz[]
) AS saved
ON CONFLICT (stack, letter_key) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    reason = excluded.reason,
    detail = excluded.detail,
    source_stream = excluded.source_stream,
    source_seq = excluded.source_seq,
    source_subject = excluded.source_subject,
    actor_id = excluded.actor_id,
    headers = excluded.headers,
    payload = excluded.payload,
    payload_size_bytes = excluded.payload_size_bytes,
    lettered_at = excluded.lettered_at
