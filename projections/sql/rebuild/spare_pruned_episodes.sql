-- Rows of episodes that retention has taken from the live rows are no difference: the history still has them.
-- $1 stack.
DELETE FROM {differing} AS d
USING {fresh}.episodes AS made
WHERE made.stack = $1 AND made.episode_id = d.episode_id
    AND NOT EXISTS (
        SELECT FROM {live}.episodes AS l WHERE l.stack = $1 AND l.episode_id = made.episode_id
    )
    AND {live}.hold_on($1, made.actor_id, made.episode_id, made.subject_id) IS NULL
    AND made.finished_at < (
        SELECT cut.before
        FROM {live}.retention_cuts AS cut
        WHERE cut.stack = $1 AND cut.what = CASE WHEN made.status IN ('failed', 'partially_failed') THEN 'failed' ELSE 'done' END AND cut.actor_id IN (made.actor_id, '')
        ORDER BY cut.actor_id DESC
        LIMIT 1
    )
