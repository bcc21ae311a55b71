-- What budgets would suit what episodes use: 95th percentile of the latest 100, and a quarter more.

CREATE VIEW budget_recommendations AS
SELECT
    newest.stack, newest.actor_id, newest.expectation_id, newest.budget,
    used.episodes, used.exhausted,
    used.turns_p50, used.turns_p95, used.turns_max,
    used.tokens_p50, used.tokens_p95, used.tokens_max,
    used.wall_p50_s, used.wall_p95_s, used.wall_max_s,
    -- guard: budget-rows-need-five
    CASE WHEN used.episodes >= 5 THEN ceil(1.25 * used.turns_p95)::bigint END AS turns,
    CASE WHEN used.episodes >= 5 THEN ceil(1.25 * used.tokens_p95)::bigint END AS tokens,
    CASE WHEN used.episodes >= 5 THEN ceil(1.25 * used.wall_p95_s) END AS wall_s,
    newest.journal_seq
FROM (
    SELECT DISTINCT ON (stack, actor_id, expectation_id)
        stack, actor_id, expectation_id, budget, journal_seq
    FROM episodes
    WHERE started_at IS NOT NULL
    ORDER BY stack, actor_id, expectation_id, started_at DESC
) AS newest
CROSS JOIN LATERAL (
    SELECT
        count(*) AS episodes,
        count(*) FILTER (WHERE error_class = 'budget_exceeded') AS exhausted,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY turns_used) AS turns_p50,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY turns_used) AS turns_p95,
        max(turns_used) AS turns_max,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY tokens_used) AS tokens_p50,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY tokens_used) AS tokens_p95,
        max(tokens_used) AS tokens_max,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY used_s) AS wall_p50_s,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY used_s) AS wall_p95_s,
        max(used_s) AS wall_max_s
    FROM (
        SELECT
            turns_used, tokens_used, wall_used_ms::double precision / 1000 AS used_s, error_class
        FROM episodes AS episode
        WHERE (episode.stack, episode.actor_id, episode.expectation_id)
            = (newest.stack, newest.actor_id, newest.expectation_id)
            AND episode.started_at IS NOT NULL
            AND episode.mode = 'live'  -- guard: budget-rows-meant-only
            AND episode.forked_from IS NULL
            -- What failed for another reason, or was canceled, had not used what it needs.
            AND (
                episode.status IN ('done', 'partially_failed')
                OR episode.error_class = 'budget_exceeded'  -- guard: budget-rows-exhausted-count
            )
        ORDER BY episode.started_at DESC
        LIMIT 100  -- guard: budget-rows-latest-hundred
    ) AS latest
) AS used
WHERE used.episodes > 0;
COMMENT ON VIEW budget_recommendations IS
    'What the latest 100 episodes of each expectation used of their budgets, and what would suit them. Only advice: nothing applies it.';
COMMENT ON COLUMN budget_recommendations.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN budget_recommendations.actor_id IS 'The actor.';
COMMENT ON COLUMN budget_recommendations.expectation_id IS 'The expectation.';
COMMENT ON COLUMN budget_recommendations.budget IS
    'What its latest episode may use: turns, tokens, wall_s (seconds). 0 or less: no limit.';
COMMENT ON COLUMN budget_recommendations.episodes IS
    'How many episodes this is of: live ones that were done or partially_failed, or used their budget up.';
COMMENT ON COLUMN budget_recommendations.exhausted IS
    'Those that failed because their budget was used up: they would have needed more.';
COMMENT ON COLUMN budget_recommendations.turns_p50 IS 'Median of the turns that they used.';
COMMENT ON COLUMN budget_recommendations.turns_p95 IS '95th percentile of the turns.';
COMMENT ON COLUMN budget_recommendations.turns_max IS 'Most turns that one of them used.';
COMMENT ON COLUMN budget_recommendations.tokens_p50 IS 'Median of the model tokens that they used.';
COMMENT ON COLUMN budget_recommendations.tokens_p95 IS '95th percentile of the tokens.';
COMMENT ON COLUMN budget_recommendations.tokens_max IS 'Most tokens that one of them used.';
COMMENT ON COLUMN budget_recommendations.wall_p50_s IS
    'Median of the time that their steps took, in seconds.';
COMMENT ON COLUMN budget_recommendations.wall_p95_s IS
    '95th percentile of the time that their steps took, in seconds.';
COMMENT ON COLUMN budget_recommendations.wall_max_s IS
    'Longest time that the steps of one of them took, in seconds.';
COMMENT ON COLUMN budget_recommendations.turns IS
    'Turns that would suit: the 95th percentile and a quarter more, rounded up. NULL: fewer than 5 episodes.';
COMMENT ON COLUMN budget_recommendations.tokens IS
    'Tokens that would suit, in the same way; 0: none were used.';
COMMENT ON COLUMN budget_recommendations.wall_s IS
    'Seconds that would suit, in the same way. The time between steps is not on the journal, and comes on top.';
COMMENT ON COLUMN budget_recommendations.journal_seq IS
    'Sequence of the commit that last changed the row of its latest episode, in the journal or in its partition of it.';
