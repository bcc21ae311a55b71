-- Findings as they were at a time, worst first, then the latest changed.
-- $1 stack, $2 the time, $3 statuses or NULL, $4 severities or NULL, $5 actors or NULL, $6 to $10 those
-- after the finding with this severity, changed at this time by this commit, with this key and raise,
-- or NULL, $11 most.
SELECT *
FROM findings_at($1, $2, coalesce($3::text[] = ARRAY['active'], false))
WHERE ($3::text[] IS NULL OR status = ANY($3))
    AND ($4::severity[] IS NULL OR severity = ANY($4))
    AND ($5::text[] IS NULL OR actor_id = ANY($5))
    AND (
        $6::severity IS NULL
        OR (severity, updated_at, journal_seq, finding_key, raise_no)
            < ($6, $7::timestamptz, $8::bigint, $9::text, $10::bigint)  -- way
    )
ORDER BY
    severity DESC, updated_at DESC, journal_seq DESC, finding_key DESC, raise_no DESC  -- way
LIMIT $11
