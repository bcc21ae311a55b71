-- What happened to episodes after their opening; NULL leaves a column as it is, but what blocks an
-- episode is said with its status.
-- $1 stack, $2 rows as JSON (projections/episodes.py, Advance).
UPDATE episodes AS episode SET
    journal_seq = advance.journal_seq,
    status = coalesce(advance.status, episode.status),
    blocked_by = CASE
        -- guard: followed-status-of-block
        WHEN advance.status IS NULL THEN episode.blocked_by ELSE advance.blocked_by
    END,
    node = coalesce(advance.node, episode.node),
    attempts = coalesce(advance.attempts, episode.attempts),
    takeovers = episode.takeovers + coalesce(advance.takeovers_added, 0)
        -- guard: takeover-of-running-row
        + (coalesce(advance.is_takeover_if_running, false) AND episode.status = 'running')::int,
    started_at = coalesce(episode.started_at, advance.started_at),
    finished_at = coalesce(advance.finished_at, episode.finished_at),
    turns_used = coalesce(advance.turns_used, episode.turns_used)
        + coalesce(advance.turns_added, 0),
    tokens_used = coalesce(advance.tokens_used, episode.tokens_used)
        + coalesce(advance.tokens_added, 0),
    classification = coalesce(advance.classification, episode.classification),
    confidence = coalesce(advance.confidence, episode.confidence),
    summary = coalesce(advance.summary, episode.summary),
    error_class = coalesce(advance.error_class, episode.error_class),
    error_detail = coalesce(advance.error_detail, episode.error_detail),
    outputs = coalesce(advance.outputs, episode.outputs),
    metadata = CASE
        WHEN advance.metadata IS NULL THEN episode.metadata
        ELSE coalesce(episode.metadata, '{}') || advance.metadata
    END,
    model = coalesce(episode.model, advance.model),
    wall_used_ms = coalesce(advance.wall_used_ms, episode.wall_used_ms),
    first_node = coalesce(episode.first_node, advance.first_node),
    level_outcome = coalesce(advance.level_outcome, episode.level_outcome),
    would_raise = coalesce(advance.would_raise, episode.would_raise),
    would_send = coalesce(advance.would_send, episode.would_send),
    cost_usd = episode.cost_usd + coalesce(advance.cost_usd_added, 0),
    agent = coalesce(advance.agent, episode.agent),
    left_at = coalesce(advance.left_at, episode.left_at),
    deferred_at = coalesce(advance.deferred_at, episode.deferred_at)
FROM json_to_recordset($2::json) AS advance (
    episode_id uuid, journal_seq bigint, status text, blocked_by text, node text,
    attempts bigint, takeovers_added bigint, is_takeover_if_running boolean, started_at timestamptz, finished_at timestamptz, turns_used bigint,
    turns_added bigint, tokens_used bigint, tokens_added bigint, classification jsonb, confidence double precision,
    summary text, error_class text, error_detail text, outputs jsonb, metadata jsonb, model text,
    wall_used_ms bigint, first_node text, level_outcome text,
    would_raise jsonb, would_send jsonb, cost_usd_added numeric, agent text,
    left_at timestamptz, deferred_at timestamptz
)
WHERE episode.stack = $1 AND episode.episode_id = advance.episode_id
