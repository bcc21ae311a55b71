-- The latest failed episodes, those that failed alike as one row: with the same error, of the same
-- expectation, in the same tool. The one that failed last comes first.
-- $1 stack, $2 actors or NULL, $3 expectation or NULL, $4 those that started since then, or NULL, $5
-- most failed episodes that are looked at, $6 most rows.
WITH failed AS (
    SELECT
        episode_id, actor_id, expectation_id, error_class, error_detail, started_at, finished_at,
        journal_seq
    FROM episodes
    WHERE stack = $1 AND status = 'failed'
        AND ($2::text[] IS NULL OR actor_id = ANY($2))
        AND ($3::text IS NULL OR expectation_id = $3)
        AND ($4::timestamptz IS NULL OR started_at >= $4)
    ORDER BY started_at DESC, queued_at DESC
    LIMIT $5
)
SELECT
    failed.actor_id, failed.expectation_id, failed.error_class, broken.tool_name,
    count(*) AS episodes,
    min(coalesce(failed.finished_at, failed.started_at)) AS first_at,
    max(coalesce(failed.finished_at, failed.started_at)) AS last_at,
    (array_agg(failed.episode_id ORDER BY failed.started_at DESC))[1] AS example_id,
    (array_agg(failed.error_detail ORDER BY failed.started_at DESC))[1] AS error_detail,
    max(failed.journal_seq) AS journal_seq
FROM failed
LEFT JOIN LATERAL (
    SELECT step.tool_name
    FROM episode_steps AS step
    WHERE step.stack = $1 AND step.episode_id = failed.episode_id
        AND step.error_class IS NOT NULL
    ORDER BY step.step_no DESC
    LIMIT 1
) AS broken ON true
GROUP BY failed.actor_id, failed.expectation_id, failed.error_class, broken.tool_name
ORDER BY last_at DESC NULLS LAST, episodes DESC
LIMIT $6
