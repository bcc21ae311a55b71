-- Rows of outputs that retention has taken from the live rows are no difference: the history still has them.
-- $1 stack.
DELETE FROM {differing} AS d
USING {fresh}.outputs AS made
WHERE made.stack = $1 AND made.status IN ('delivered', 'failed', 'rejected', 'canceled')
    AND made.output_key = d.output_key
    AND NOT EXISTS (
        SELECT FROM {live}.outputs AS l WHERE l.stack = $1 AND l.output_key = made.output_key
    )
    AND {live}.hold_on(
        $1, made.actor_id, made.episode_id,
        (SELECT e.subject_id FROM {fresh}.episodes AS e WHERE e.stack = $1 AND e.episode_id = made.episode_id)
    ) IS NULL
    AND made.updated_at < (
        SELECT cut.before
        FROM {live}.retention_cuts AS cut
        WHERE cut.stack = $1 AND cut.what = 'outputs' AND cut.actor_id IN (made.actor_id, '')
        ORDER BY cut.actor_id DESC
        LIMIT 1
    )
