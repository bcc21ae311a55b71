-- Whether there is anything that a hold would keep.
-- $1 stack, $2 actor, episode or subject, $3 its name.
SELECT CASE $2
    WHEN 'episode' THEN EXISTS (
        SELECT FROM episodes
        WHERE stack = $1 AND episode_id = CASE WHEN $2 = 'episode' THEN $3::text::uuid END
    )
    WHEN 'actor' THEN EXISTS (
        SELECT FROM episodes WHERE stack = $1 AND actor_id = $3
    ) OR EXISTS (
        SELECT FROM findings WHERE stack = $1 AND actor_id = $3
    ) OR EXISTS (
        SELECT FROM workflow_instances WHERE stack = $1 AND 'workflow-' || workflow_id = $3
    )
    ELSE EXISTS (
        SELECT FROM episodes WHERE stack = $1 AND subject_id = $3
    ) OR EXISTS (
        SELECT FROM findings WHERE stack = $1 AND subject_id = $3
    ) OR EXISTS (
        SELECT FROM workflow_instances WHERE stack = $1 AND subject_value = $3
    )
END AS is_seen
