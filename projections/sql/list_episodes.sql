-- Episodes, queued ones first, then the latest started.
-- $1 stack, $2 status or NULL, $3 actor or NULL, $4 most.
SELECT
    episode_id, actor_id, expectation_id, status, subject_kind, subject_id, attempts,
    turns_used, tokens_used, confidence, summary, error_class, node, queued_at, started_at,
    finished_at, journal_seq
FROM episodes
WHERE stack = $1
    AND ($2::text IS NULL OR status = $2)
    AND ($3::text IS NULL OR actor_id = $3)
ORDER BY started_at DESC NULLS FIRST, queued_at DESC, journal_seq DESC
LIMIT $4
