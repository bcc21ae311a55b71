-- Outputs as they were at a time, the latest proposed first.
-- $1 stack, $2 the time, $3 statuses or NULL, $4 actors or NULL, $5 adapter or NULL, $6 episode or
-- NULL, $7 and $8 those after the output that was proposed at this time with this key, or NULL, $9
-- most.
SELECT
    output_key, status, adapter, actor_id, expectation_id, episode_id, summary, attempts,
    next_attempt_at, delivered_ref, error_class, error_detail, expires_at, decided_by,
    created_at, updated_at, delivered_at, canceled_at, journal_seq
FROM outputs_at($1, $2)
WHERE ($3::text[] IS NULL OR status = ANY($3))
    AND ($4::text[] IS NULL OR actor_id = ANY($4))
    AND ($5::text IS NULL OR adapter = $5)
    AND ($6::uuid IS NULL OR episode_id = $6)
    AND (
        $7::timestamptz IS NULL
        OR (created_at, output_key) < ($7, $8::text)  -- way
    )
ORDER BY created_at DESC, output_key DESC  -- way
LIMIT $9
