-- Episodes that were opened, with what followed the opening as far as it is known.
-- Reset to that when replayed over rows that exist.
-- $1 stack, $2 rows as JSON (projections/episodes.py, Opened).
INSERT INTO episodes (
    stack, episode_id, journal_seq, actor_id, expectation_id, spec_rev, generation,
    trigger_type, trigger_ref, subject_kind, subject_id, dedupe_key, budget, queued_at,
    status, node, attempts, started_at, finished_at, turns_used, tokens_used,
    classification, confidence, summary, error_class, error_detail,
    mode, priority, opened_by, is_request, start_by, blocked_by, outputs, definition_revision
)
SELECT
    $1, episode_id, journal_seq, actor_id, expectation_id, spec_rev, generation,
    trigger_type, trigger_ref, subject_kind, subject_id, dedupe_key, budget, queued_at,
    status, node, coalesce(attempts, 0), started_at, finished_at, coalesce(turns_used, 0),
    coalesce(tokens_used, 0) + coalesce(tokens_added, 0),
    classification, confidence, summary, error_class, error_detail,
    coalesce(mode, 'live'), coalesce(priority, 0), opened_by, coalesce(is_request, false), start_by,
    blocked_by, outputs, definition_revision
FROM json_to_recordset($2::json) AS opened (
    episode_id uuid, journal_seq bigint, actor_id text, expectation_id text, spec_rev text,
    generation bigint, trigger_type text, trigger_ref jsonb, subject_kind text,
    subject_id text, dedupe_key text, budget jsonb, queued_at timestamptz,
    status text, node text, attempts bigint, started_at timestamptz,
    finished_at timestamptz, turns_used bigint, tokens_used bigint, tokens_added bigint,
    classification jsonb, confidence double precision, summary text, error_class text,
    error_detail text, mode text, priority bigint, opened_by text, is_request boolean,
    start_by timestamptz, blocked_by text, outputs jsonb, definition_revision bigint
)
ON CONFLICT (stack, episode_id) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    actor_id = excluded.actor_id,
    expectation_id = excluded.expectation_id,
    spec_rev = excluded.spec_rev,
    generation = excluded.generation,
    trigger_type = excluded.trigger_type,
    trigger_ref = excluded.trigger_ref,
    subject_kind = excluded.subject_kind,
    subject_id = excluded.subject_id,
    dedupe_key = excluded.dedupe_key,
    budget = excluded.budget,
    queued_at = excluded.queued_at,
    status = excluded.status,
    node = excluded.node,
    attempts = excluded.attempts,
    started_at = excluded.started_at,
    finished_at = excluded.finished_at,
    turns_used = excluded.turns_used,
    tokens_used = excluded.tokens_used,
    classification = excluded.classification,
    confidence = excluded.confidence,
    summary = excluded.summary,
    error_class = excluded.error_class,
    error_detail = excluded.error_detail,
    mode = excluded.mode,
    priority = excluded.priority,
    opened_by = excluded.opened_by,
    is_request = excluded.is_request,
    start_by = excluded.start_by,
    blocked_by = excluded.blocked_by,
    outputs = excluded.outputs,
    definition_revision = excluded.definition_revision
