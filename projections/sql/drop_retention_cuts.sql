-- Deletes the times that newer ones have replaced.
-- $1 stack, $2 rows as JSON, one of them (projections/orders.py, OlderCuts).
DELETE FROM retention_cuts
USING json_to_recordset($2::json) AS older (journal_seq bigint)
WHERE retention_cuts.stack = $1 AND retention_cuts.journal_seq < older.journal_seq
