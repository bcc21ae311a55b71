-- The log of one episode, line by line, in order; none if its strategy, or the one that is asked
-- for, is none. $1 stack, $2 episode, $3 log strategy to show it by or NULL, $4 most.
SELECT
    line.*,
    log_line(
        line.at, line.says, line.cost_ms, CASE shown.strategy WHEN 'full_debug' THEN line.details END
    ) AS line
FROM episodes AS episode
CROSS JOIN LATERAL (SELECT coalesce($3::text, episode.log_strategy) AS strategy) AS shown
JOIN episode_timeline AS line USING (stack, episode_id)
WHERE episode.stack = $1 AND episode.episode_id = $2
    AND (
        shown.strategy IN ('timeline', 'full_debug')
        OR shown.strategy = 'summary_only' AND line.kind = 'episode_finished'
    )
ORDER BY line.position
LIMIT $4
