-- Episodes, queued ones first, then the latest started; of those that wait their turn, the place,
-- and of blocked ones, what they wait for.
-- $1 stack, $2 statuses or NULL, $3 actors or NULL, $4 expectation or NULL, $5 subject or NULL, $6 and
-- $7 those opened at this time or later, and before this time, or NULL, $8 to $10 those after the
-- episode that started and was queued at these times with this id, or NULL, $11 most, $12 class of
-- error or NULL.
WITH listed AS (
    SELECT
        episode_id, actor_id, expectation_id, status, subject_kind, subject_id, attempts,
        turns_used, tokens_used, cost_usd, wall_used_ms, model, agent, confidence, summary,
        error_class, error_detail, node, mode, metadata, workflow_id, workflow_instance_id, workflow_step_id,
        queued_at, started_at, finished_at, forked_from, blocked_by, journal_seq
    FROM episodes
    WHERE stack = $1
        AND ($2::text[] IS NULL OR status = ANY($2))
        AND ($3::text[] IS NULL OR actor_id = ANY($3))
        AND ($4::text IS NULL OR expectation_id = $4)
        AND ($5::text IS NULL OR subject_id = $5)
        AND ($6::timestamptz IS NULL OR queued_at >= $6)
        AND ($7::timestamptz IS NULL OR queued_at < $7)
        AND ($12::text IS NULL OR error_class = $12)
        -- So that the index leads to the page.
        AND ($8::timestamptz IS NULL OR started_at <= $8)  -- one way
        -- other way: AND ($8::timestamptz IS NULL OR started_at >= $8 OR started_at IS NULL)
        AND (
            $9::timestamptz IS NULL
            -- guard: page-begins-after-last
            OR (coalesce(started_at, 'infinity'), queued_at, episode_id)
                < (coalesce($8::timestamptz, 'infinity'), $9::timestamptz, $10::uuid)  -- way
        )
    ORDER BY started_at DESC NULLS FIRST, queued_at DESC, episode_id DESC  -- way
    LIMIT $11
)
SELECT
    listed.*, queued.position, waiting.ref AS blocked_ref, waiting.expires_at AS blocked_until
FROM listed
LEFT JOIN queued_episodes AS queued ON queued.stack = $1 AND queued.episode_id = listed.episode_id
LEFT JOIN LATERAL (
    SELECT block.ref, block.expires_at
    FROM episode_blocks AS block
    WHERE listed.blocked_by IS NOT NULL AND block.stack = $1
        AND block.episode_id = listed.episode_id
    ORDER BY block.step_no DESC
    LIMIT 1
) AS waiting ON true
ORDER BY started_at DESC NULLS FIRST, listed.queued_at DESC, listed.episode_id DESC  -- way
