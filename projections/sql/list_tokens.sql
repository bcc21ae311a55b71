-- Tokens, the latest first.
-- $1 stack, $2 true: those that are good, false: those that are not, NULL: all, $3 the time now,
-- $4 and $5 those after the token that was issued at this time with this id, or NULL, $6 most.
SELECT
    token_id, name, role, scopes, is_agent, owner, issued_at, issued_by, issued_reason, expires_at,
    revoked_at, revoked_by, revoked_reason, journal_seq
FROM tokens
WHERE stack = $1
    AND ($2::boolean IS NULL OR (revoked_at IS NULL AND expires_at > $3::timestamptz) = $2)
    AND ($4::timestamptz IS NULL OR (issued_at, token_id) < ($4, $5::text))  -- way
ORDER BY issued_at DESC, token_id DESC  -- way
LIMIT $6
