-- Steps that were announced or recorded; NULL leaves a column as it is.
-- $1 stack, then one array per column (projections/episodes.py, Step).
INSERT INTO episode_steps AS step (
    stack, episode_id, step_no, journal_seq, kind, state, tool_name, created_at, announced_at,
    side_effect_key, args_redacted, result, error_class, error_detail,
    cost_tokens, cost_ms, model
)
SELECT $1, recorded.*
FROM unnest(
    $2::uuid[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[],
    $8::timestamptz[], $9::timestamptz[], $10::text[], $11::jsonb[], $12::jsonb[],
    $13::text[], $14::text[], $15::bigint[], $16::bigint[], $17::text[]
) AS recorded
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
    model = coalesce(excluded.model, step.model)
