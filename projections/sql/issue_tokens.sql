-- Tokens that were issued, with what followed as far as it is known.
-- $1 stack, $2 rows as JSON (projections/people.py, TokenRow).
INSERT INTO tokens (
    stack, token_id, journal_seq, name, role, scopes, is_agent, owner, issued_at, issued_by,
    issued_reason, expires_at, revoked_at, revoked_by, revoked_reason
)
SELECT $1, issued.*
FROM json_to_recordset($2::json) AS issued (
    token_id text, journal_seq bigint, name text, role text, scopes text[], is_agent boolean,
    owner text, issued_at timestamptz, issued_by text, issued_reason text,
    expires_at timestamptz, revoked_at timestamptz, revoked_by text, revoked_reason text
)
ON CONFLICT (stack, token_id) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    revoked_at = coalesce(excluded.revoked_at, tokens.revoked_at),
    revoked_by = coalesce(excluded.revoked_by, tokens.revoked_by),
    revoked_reason = coalesce(excluded.revoked_reason, tokens.revoked_reason)
