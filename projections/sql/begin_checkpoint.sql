-- A projection that has come nowhere yet. $1 stack, $2 projection, $3 now.
INSERT INTO projection_checkpoints (stack, projection, journal_seq, updated_at)
VALUES ($1, $2, 0, $3::timestamptz)
ON CONFLICT (stack, projection) DO NOTHING
