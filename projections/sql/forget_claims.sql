-- What we thought was held, before the bucket says again what is.
-- $1 stack, $2 rows as JSON, one of them (projections/claims.py, Forgotten).
UPDATE work_claims SET state = 'done', finished_at = forgotten.finished_at
FROM json_to_recordset($2::json) AS forgotten (finished_at timestamptz)
WHERE stack = $1 AND state = 'claimed'
