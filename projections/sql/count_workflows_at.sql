-- How many instances of workflows there were with each status at a time.
-- $1 stack, $2 the time, $3 workflow or NULL.
SELECT status, count(*) AS instances
FROM workflows_at($1, $2)
WHERE $3::text IS NULL OR workflow_id = $3
GROUP BY status
ORDER BY status
