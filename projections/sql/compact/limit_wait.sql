-- How long the transaction waits for a lock at most, and whoever comes after it waits with it: $1 with its unit. How
-- long it may keep others waiting: $2, for a statement, and until whoever has it sends the next one.
SELECT
    set_config('lock_timeout', $1, true),
    set_config('statement_timeout', $2, true),
    set_config('idle_in_transaction_session_timeout', $2, true)
