-- Outputs, the latest proposed first.
-- $1 stack, $2 statuses or NULL, $3 actors or NULL, $4 adapter or NULL, $5 episode or NULL, $6 and
-- $7 those after the output that was proposed at this time with this key, or NULL, $8 most.
SELECT
    output_key, status, adapter, actor_id, expectation_id, episode_id, summary, attempts,
    next_attempt_at, delivered_ref, error_class, error_detail, expires_at, decided_by,
    created_at, updated_at, delivered_at, canceled_at, journal_seq
FROM outputs
WHERE stack = $1
    AND ($2::text[] IS NULL OR status = ANY($2))
    AND ($3::text[] IS NULL OR actor_id = ANY($3))
    AND ($4::text IS NULL OR adapter = $4)
    AND ($5::uuid IS NULL OR episode_id = $5)
    AND (
        $6::timestamptz IS NULL
        OR (created_at, output_key) < ($6, $7::text)  -- way
    )
ORDER BY created_at DESC, output_key DESC  -- way
LIMIT $8
