-- What has changed about people.
-- $1 stack, $2 rows as JSON (projections/people.py, PersonChange).
UPDATE people AS person SET
    journal_seq = changed.journal_seq,
    role = coalesce(changed.role, person.role),
    groups = coalesce(changed.groups, person.groups),
    has_password = coalesce(changed.has_password, person.has_password),
    issuer = coalesce(changed.issuer, person.issuer),
    subject = coalesce(changed.subject, person.subject),
    removed_at = coalesce(changed.removed_at, person.removed_at),
    removed_by = coalesce(changed.removed_by, person.removed_by)
FROM json_to_recordset($2::json) AS changed (
    name text, journal_seq bigint, role text, groups text[], has_password boolean, issuer text,
    subject text, removed_at timestamptz, removed_by text
)
WHERE person.stack = $1 AND person.name = changed.name
