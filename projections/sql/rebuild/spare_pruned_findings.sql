-- Raises of findings that retention has taken from the live rows are no difference: the history still has them.
-- $1 stack.
DELETE FROM {differing} AS d
USING {fresh}.findings AS made
WHERE made.stack = $1 AND made.status <> 'active' AND made.finding_key = d.finding_key AND made.raise_no = d.raise_no
    AND NOT EXISTS (
        SELECT FROM {live}.findings AS l WHERE l.stack = $1 AND l.finding_key = made.finding_key AND l.raise_no = made.raise_no
    )
    AND {live}.hold_on($1, made.actor_id, made.raised_by_episode_id, made.subject_id) IS NULL
    AND coalesce(made.cleared_at, made.superseded_at, made.updated_at) < (
        SELECT cut.before
        FROM {live}.retention_cuts AS cut
        WHERE cut.stack = $1 AND cut.what = 'findings' AND cut.actor_id IN (made.actor_id, '')
        ORDER BY cut.actor_id DESC
        LIMIT 1
    )
