-- Begins another segment of the log of Postgres, so that a checkpoint lets go of this one.
SELECT pg_switch_wal()
