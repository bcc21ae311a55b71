-- An episode's children that there were at a time, theirs, and so on, as they were then.
-- $1 stack, $2 episode, $3 most levels, $4 most, $5 the time.
WITH RECURSIVE tree AS (
    SELECT
        child.stack, child.episode_id, child.parent_id, child.parent_call, 1 AS level,
        string_to_array(child.parent_call, '.')::bigint[] AS place
    FROM episodes AS child
    WHERE child.stack = $1 AND child.parent_id = $2 AND child.queued_at <= $5
    UNION ALL
    SELECT
        child.stack, child.episode_id, child.parent_id, child.parent_call, tree.level + 1,
        -- A call never has the number 0 first, so a parent comes before its children.
        tree.place || 0::bigint || string_to_array(child.parent_call, '.')::bigint[]
    FROM tree
    JOIN episodes AS child ON child.stack = tree.stack AND child.parent_id = tree.episode_id
    WHERE tree.level < $3 AND child.queued_at <= $5
)

SELECT
    tree.level, tree.parent_call, tree.episode_id, tree.parent_id, then_.actor_id,
    then_.expectation_id, then_.subject_id, then_.status, then_.turns_used, then_.tokens_used,
    then_.started_at, then_.finished_at, then_.summary, then_.error_class
FROM tree
JOIN episodes_at($1, $5) AS then_ ON then_.episode_id = tree.episode_id
ORDER BY tree.place, tree.episode_id
LIMIT $4
