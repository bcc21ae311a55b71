-- What one episode waited for at a time. $1 stack, $2 episode, $3 the time.
SELECT * FROM episode_blocks
WHERE stack = $1 AND episode_id = $2 AND blocked_at <= $3
    AND (resolved_at IS NULL OR resolved_at > $3)
ORDER BY step_no DESC
LIMIT 1
