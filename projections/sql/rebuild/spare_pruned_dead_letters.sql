-- Dead letters that retention has taken from the live rows are no difference: the history still has them.
-- $1 stack.
DELETE FROM {differing} AS d
USING {fresh}.dead_letters AS made
WHERE made.stack = $1 AND made.letter_key = d.letter_key
    AND NOT EXISTS (
        SELECT FROM {live}.dead_letters AS l WHERE l.stack = $1 AND l.letter_key = made.letter_key
    )
    AND {live}.hold_on(
        $1, made.actor_id, made.episode_id,
        (SELECT e.subject_id FROM {fresh}.episodes AS e WHERE e.stack = $1 AND e.episode_id = made.episode_id)
    ) IS NULL
    AND made.settled_at < (
        SELECT cut.before
        FROM {live}.retention_cuts AS cut
        WHERE cut.stack = $1 AND cut.what = 'dead_letters' AND cut.actor_id IN ('', '')
        ORDER BY cut.actor_id DESC
        LIMIT 1
    )
