-- Rows of instances that retention has taken from the live rows are no difference: the history still has them.
-- $1 stack.
DELETE FROM {differing} AS d
USING {fresh}.workflow_instances AS made
WHERE made.stack = $1 AND made.instance_id = d.instance_id
    AND NOT EXISTS (
        SELECT FROM {live}.workflow_instances AS l WHERE l.stack = $1 AND l.instance_id = made.instance_id
    )
    AND {live}.hold_on($1, 'workflow-' || made.workflow_id, NULL, made.subject_value) IS NULL
    AND made.finished_at < (
        SELECT cut.before
        FROM {live}.retention_cuts AS cut
        WHERE cut.stack = $1 AND cut.what = CASE WHEN made.status = 'failed' THEN 'failed' ELSE 'done' END AND cut.actor_id IN ('workflow-' || made.workflow_id, '')
        ORDER BY cut.actor_id DESC
        LIMIT 1
    )
