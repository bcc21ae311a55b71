-- Episodes as they were at a time, the latest opened first.
-- $1 stack, $2 the time, $3 statuses or NULL, $4 actors or NULL, $5 expectation or NULL, $6 subject or
-- NULL, $7 and $8 those opened at this time or later, and before this time, or NULL, $9 class of error
-- or NULL, $10 and $11 those after the episode that was opened at this time with this id, or NULL,
-- $12 most.
SELECT *, NULL::bigint AS position
FROM episodes_at($1, $2, $3::text[])
WHERE ($4::text[] IS NULL OR actor_id = ANY($4))
    AND ($5::text IS NULL OR expectation_id = $5)
    AND ($6::text IS NULL OR subject_id = $6)
    AND ($7::timestamptz IS NULL OR queued_at >= $7)
    AND ($8::timestamptz IS NULL OR queued_at < $8)
    AND ($9::text IS NULL OR error_class = $9)
    AND (
        $10::timestamptz IS NULL
        OR (queued_at, episode_id) < ($10, $11::uuid)  -- way
    )
ORDER BY queued_at DESC, episode_id DESC  -- way
LIMIT $12
