-- What one episode waits for, or waited for last. $1 stack, $2 episode.
SELECT * FROM episode_blocks
WHERE stack = $1 AND episode_id = $2
ORDER BY step_no DESC
LIMIT 1
