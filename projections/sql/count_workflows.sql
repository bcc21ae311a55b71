-- How many instances of workflows there are with each status. $1 stack, $2 workflow or NULL.
SELECT status, count(*) AS instances
FROM workflows
WHERE stack = $1 AND ($2::text IS NULL OR workflow_id = $2)
GROUP BY status
ORDER BY status
