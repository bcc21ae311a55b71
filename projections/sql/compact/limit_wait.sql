-- How long the transaction waits for a lock at most, and whoever comes after it waits with it. $1 with its unit.
SELECT set_config('lock_timeout', $1, true)
