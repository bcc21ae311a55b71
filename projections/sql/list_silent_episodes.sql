-- Episodes that wait or run, and of which no row says anything newer, the longest silent first.
-- $1 stack, $2 before when, $3 most.
SELECT episode.episode_id, episode.actor_id, episode.status, step.latest_at
FROM episodes AS episode
CROSS JOIN LATERAL (
    SELECT greatest(episode.queued_at, episode.started_at, max(taken.created_at)) AS latest_at
    FROM episode_steps AS taken
    WHERE taken.stack = episode.stack AND taken.episode_id = episode.episode_id
) AS step
WHERE episode.stack = $1
    AND episode.status IN ('queued', 'running')
    AND step.latest_at < $2::timestamptz
ORDER BY step.latest_at, episode.journal_seq
LIMIT $3
