-- Active findings that somebody asks for. Every condition but the stack may be NULL.
-- $1 stack, $2 actor, $3 class, $4 key, $5 kind and $6 id of the subject, $7 key of what explains
-- them, $8 least severity, $9 what to order by, $10 most, $11 how many to leave out.
SELECT *
FROM active_findings
WHERE stack = $1
    AND ($2::text IS NULL OR actor_id = $2)
    AND ($3::text IS NULL OR class = $3)
    AND ($4::text IS NULL OR finding_key = $4)
    AND ($5::text IS NULL OR subject_kind = $5)
    AND ($6::text IS NULL OR subject_id = $6)
    AND ($7::text IS NULL OR caused_by_key = $7)
    AND ($8::text IS NULL OR severity >= $8::severity)
ORDER BY
    CASE WHEN $9 = 'severity' THEN severity END DESC,
    CASE WHEN $9 = 'raised_at' THEN raised_at END DESC,
    CASE WHEN $9 = 'expires_at' THEN expires_at END,
    updated_at DESC,
    finding_key
LIMIT $10 OFFSET $11
