-- What could not be done, with what was decided about it as far as that is known.
-- Reset to that when replayed over rows that exist.
-- $1 stack, $2 rows as JSON (projections/dead_letters.py, Letter).
INSERT INTO dead_letters (
    stack, letter_key, journal_seq, reason, detail, source_stream, source_seq, source_subject,
    actor_id, episode_id, headers, payload, payload_size_bytes, lettered_at, status,
    settled_at, settled_by, settled_note, output_key
)
SELECT
    $1, letter_key, journal_seq, reason, detail, source_stream, source_seq, source_subject,
    actor_id, episode_id, headers, decode(payload, 'base64'), payload_size_bytes,
    lettered_at, status, settled_at, settled_by, settled_note, output_key
FROM json_to_recordset($2::json) AS saved (
    letter_key text, journal_seq bigint, reason text, detail text, source_stream text,
    source_seq bigint, source_subject text, actor_id text, episode_id uuid, headers jsonb,
    payload text, payload_size_bytes bigint, lettered_at timestamptz, status text,
    settled_at timestamptz, settled_by text, settled_note text, output_key text
)
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
    settled_at = excluded.settled_at,
    settled_by = excluded.settled_by,
    settled_note = excluded.settled_note,
    output_key = excluded.output_key
