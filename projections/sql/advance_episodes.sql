-- What happened to episodes after their opening; NULL leaves a column as it is.
-- $1 stack, then one array per column (projections/episodes.py, Advance).
UPDATE episodes AS episode SET
    journal_seq = advance.journal_seq,
    status = coalesce(advance.status, episode.status),
    node = coalesce(advance.node, episode.node),
    attempts = coalesce(advance.attempts, episode.attempts),
    started_at = coalesce(episode.started_at, advance.started_at),
    finished_at = coalesce(advance.finished_at, episode.finished_at),
    turns_used = coalesce(advance.turns_used, episode.turns_used),
    tokens_used = coalesce(advance.tokens_used, episode.tokens_used) + advance.tokens_added,
    classification = coalesce(advance.classification, episode.classification),
    confidence = coalesce(advance.confidence, episode.confidence),
    summary = coalesce(advance.summary, episode.summary),
    error_class = coalesce(advance.error_class, episode.error_class),
    error_detail = coalesce(advance.error_detail, episode.error_detail)
FROM unnest(
    $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::timestamptz[],
    $8::timestamptz[], $9::bigint[], $10::bigint[], $11::bigint[], $12::jsonb[],
    $13::double precision[], $14::text[], $15::text[], $16::text[]
) AS advance (
    episode_id, journal_seq, status, node, attempts, started_at,
    finished_at, turns_used, tokens_used, tokens_added, classification,
    confidence, summary, error_class, error_detail
)
WHERE episode.stack = $1 AND episode.episode_id = advance.episode_id
