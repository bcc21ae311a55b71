-- What did the newest episode of more than one step do, in order?
WITH newest AS (
    SELECT episode_id
    FROM vigil.episode_steps
    WHERE stack = $1
    GROUP BY episode_id
    HAVING count(*) > 1
    ORDER BY max(created_at) DESC
    LIMIT 1
)
SELECT step_no, kind, tool_name, cost_ms, left(result::text, 60) AS result
FROM newest JOIN vigil.episode_steps USING (episode_id)
WHERE stack = $1
ORDER BY step_no
