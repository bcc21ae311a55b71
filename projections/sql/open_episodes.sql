-- Episodes that were opened. Reset to the opening when replayed over rows that exist.
-- $1 stack, then one array per column (projections/episodes.py, Opened).
INSERT INTO episodes (
    stack, episode_id, journal_seq, actor_id, expectation_id, spec_rev, generation,
    trigger_type, trigger_ref, subject_kind, subject_id, dedupe_key, budget, queued_at, status
)
SELECT $1, opened.*, 'queued'
FROM unnest(
    $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bigint[],
    $8::text[], $9::jsonb[], $10::text[], $11::text[], $12::text[], $13::jsonb[],
    $14::timestamptz[]
) AS opened
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
    node = NULL,
    attempts = 0,
    started_at = NULL,
    finished_at = NULL,
    turns_used = 0,
    tokens_used = 0,
    classification = NULL,
    confidence = NULL,
    summary = NULL,
    error_class = NULL,
    error_detail = NULL
