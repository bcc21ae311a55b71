-- An episode's children, theirs, and so on, each after its parent, in the order of their calls.
-- $1 stack, $2 episode, $3 most levels, $4 most.
WITH RECURSIVE tree AS (
    SELECT
        child.*, 1 AS level,
        string_to_array(child.parent_call, '.')::bigint[] AS place
    FROM episodes AS child
    WHERE child.stack = $1 AND child.parent_id = $2
    UNION ALL
    SELECT
        child.*, tree.level + 1,
        -- A call never has the number 0 first, so a parent comes before its children.
        tree.place || 0::bigint || string_to_array(child.parent_call, '.')::bigint[]
    FROM tree
    JOIN episodes AS child ON child.stack = tree.stack AND child.parent_id = tree.episode_id
    WHERE tree.level < $3
)

SELECT
    level, parent_call, episode_id, parent_id, actor_id, expectation_id, subject_id, status,
    turns_used, tokens_used, started_at, finished_at, summary, error_class
FROM tree
ORDER BY place, episode_id
LIMIT $4
