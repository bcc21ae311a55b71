-- How many episodes there were with each status at a time.
-- $1 stack, $2 the time, $3 actors or NULL, $4 expectation or NULL, $5 subject or NULL, $6 and $7 those
-- opened at this time or later, and before this time, or NULL.
SELECT status, count(*) AS episodes
FROM episodes_at($1, $2)
WHERE ($3::text[] IS NULL OR actor_id = ANY($3))
    AND ($4::text IS NULL OR expectation_id = $4)
    AND ($5::text IS NULL OR subject_id = $5)
    AND ($6::timestamptz IS NULL OR queued_at >= $6)
    AND ($7::timestamptz IS NULL OR queued_at < $7)
GROUP BY status
ORDER BY status
