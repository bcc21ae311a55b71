-- Steps that were announced or recorded; NULL leaves a column as it is.
-- $1 stack, $2 rows as JSON (projections/episodes.py, Step).
INSERT INTO episode_steps AS step (
    stack, episode_id, step_no, journal_seq, kind, state, tool_name, created_at, announced_at,
    side_effect_key, args_redacted, result, error_class, error_detail,
    cost_tokens, cost_ms, model, result_size_bytes, result_digest, is_override,
    input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost_usd, agent
)
SELECT
    $1, episode_id, step_no, journal_seq, kind, state, tool_name, created_at, announced_at,
    side_effect_key, args_redacted, result, error_class, error_detail,
    cost_tokens, cost_ms, model, result_size_bytes, result_digest, coalesce(is_override, false),
    input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost_usd, agent
FROM json_to_recordset($2::json) AS recorded (
    episode_id uuid, step_no bigint, journal_seq bigint, kind text, state text, tool_name text,
    created_at timestamptz, announced_at timestamptz, side_effect_key text,
    args_redacted jsonb, result jsonb, error_class text, error_detail text,
    cost_tokens bigint, cost_ms bigint, model text, result_size_bytes bigint, result_digest text,
    is_override boolean, input_tokens bigint, output_tokens bigint,
    cached_tokens bigint, reasoning_tokens bigint, cost_usd numeric, agent text
)
-- guard: step-of-known-episode
WHERE EXISTS (
    SELECT FROM episodes AS whole
    WHERE whole.stack = $1 AND whole.episode_id = recorded.episode_id
)
ON CONFLICT (stack, episode_id, step_no) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    kind = excluded.kind,
    state = excluded.state,
    tool_name = coalesce(excluded.tool_name, step.tool_name),
    created_at = excluded.created_at,
    announced_at = coalesce(excluded.announced_at, step.announced_at),
    side_effect_key = coalesce(excluded.side_effect_key, step.side_effect_key),
    args_redacted = coalesce(excluded.args_redacted, step.args_redacted),
    result = coalesce(excluded.result, step.result),
    error_class = coalesce(excluded.error_class, step.error_class),
    error_detail = coalesce(excluded.error_detail, step.error_detail),
    cost_tokens = coalesce(excluded.cost_tokens, step.cost_tokens),
    cost_ms = coalesce(excluded.cost_ms, step.cost_ms),
    model = coalesce(excluded.model, step.model),
    result_size_bytes = coalesce(excluded.result_size_bytes, step.result_size_bytes),
    result_digest = coalesce(excluded.result_digest, step.result_digest),
    is_override = excluded.is_override,
    input_tokens = coalesce(excluded.input_tokens, step.input_tokens),
    output_tokens = coalesce(excluded.output_tokens, step.output_tokens),
    cached_tokens = coalesce(excluded.cached_tokens, step.cached_tokens),
    reasoning_tokens = coalesce(excluded.reasoning_tokens, step.reasoning_tokens),
    cost_usd = coalesce(excluded.cost_usd, step.cost_usd),
    agent = coalesce(excluded.agent, step.agent)
