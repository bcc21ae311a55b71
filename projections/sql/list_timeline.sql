-- All that one episode did, in order.
-- $1 stack, $2 episode, $3 most, $4 what comes after this position, or NULL, $5 only by this time,
-- or NULL.
SELECT *
FROM episode_timeline
WHERE stack = $1 AND episode_id = $2 AND ($4::bigint IS NULL OR position > $4)
    AND ($5::timestamptz IS NULL OR at <= $5)
ORDER BY position
LIMIT $3
