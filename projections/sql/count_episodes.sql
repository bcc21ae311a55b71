-- How many episodes there are with each status.
-- $1 stack, $2 actors or NULL, $3 expectation or NULL, $4 subject or NULL, $5 and $6 those opened at
-- this time or later, and before this time, or NULL.
SELECT status, count(*) AS episodes
FROM episodes
WHERE stack = $1
    AND ($2::text[] IS NULL OR actor_id = ANY($2))
    AND ($3::text IS NULL OR expectation_id = $3)
    AND ($4::text IS NULL OR subject_id = $4)
    AND ($5::timestamptz IS NULL OR queued_at >= $5)
    AND ($6::timestamptz IS NULL OR queued_at < $6)
GROUP BY status
ORDER BY status
