-- Episodes, queued ones first, then the latest started; of those that wait their turn, the place.
-- $1 stack, $2 status or NULL, $3 actor or NULL, $4 most.
WITH listed AS (
    SELECT
        episode_id, actor_id, expectation_id, status, subject_kind, subject_id, attempts,
        turns_used, tokens_used, confidence, summary, error_class, error_detail, node, queued_at,
        started_at, finished_at, journal_seq
    FROM episodes
    WHERE stack = $1
        AND ($2::text IS NULL OR status = $2)
        AND ($3::text IS NULL OR actor_id = $3)
    ORDER BY started_at DESC NULLS FIRST, queued_at DESC, journal_seq DESC
    LIMIT $4
)
SELECT listed.*, queued.position
FROM listed
LEFT JOIN queued_episodes AS queued ON queued.stack = $1 AND queued.episode_id = listed.episode_id
ORDER BY started_at DESC NULLS FIRST, listed.queued_at DESC, listed.journal_seq DESC
