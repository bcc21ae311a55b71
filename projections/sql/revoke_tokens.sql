-- Tokens that were revoked.
-- $1 stack, $2 rows as JSON (projections/people.py, TokenChange).
UPDATE tokens AS token SET
    journal_seq = revoked.journal_seq,
    revoked_at = revoked.revoked_at,
    revoked_by = revoked.revoked_by,
    revoked_reason = revoked.revoked_reason
FROM json_to_recordset($2::json) AS revoked (
    token_id text, journal_seq bigint, revoked_at timestamptz, revoked_by text,
    revoked_reason text
)
WHERE token.stack = $1 AND token.token_id = revoked.token_id
