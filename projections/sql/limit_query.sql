-- For the transaction of somebody's own query. $1 milliseconds.
SELECT set_config('statement_timeout', $1, true)
