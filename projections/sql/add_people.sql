-- People as they were last added, with what followed as far as it is known.
-- $1 stack, $2 rows as JSON (projections/people.py, PersonRow).
INSERT INTO people (
    stack, name, journal_seq, role, groups, has_password, issuer, subject, added_at, added_by,
    removed_at, removed_by
)
SELECT
    $1, name, journal_seq, role, coalesce(groups, '{}'), has_password, issuer, subject, added_at,
    added_by, removed_at, removed_by
FROM json_to_recordset($2::json) AS added (
    name text, journal_seq bigint, role text, groups text[], has_password boolean, issuer text,
    subject text, added_at timestamptz, added_by text, removed_at timestamptz, removed_by text
)
ON CONFLICT (stack, name) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    role = excluded.role,
    groups = excluded.groups,
    has_password = excluded.has_password,
    issuer = excluded.issuer,
    subject = excluded.subject,
    added_at = excluded.added_at,
    added_by = excluded.added_by,
    removed_at = excluded.removed_at,
    removed_by = excluded.removed_by
