-- Raises that another one of the same finding has followed.
-- $1 stack, $2 rows as JSON (projections/findings.py, Superseded).
UPDATE findings SET
    journal_seq = superseded.journal_seq,
    status = 'superseded',
    superseded_at = superseded.superseded_at
FROM json_to_recordset($2::json) AS superseded (
    finding_key text, raise_no bigint, journal_seq bigint, superseded_at timestamptz
)
WHERE findings.stack = $1
    AND findings.finding_key = superseded.finding_key
    AND findings.raise_no = superseded.raise_no
