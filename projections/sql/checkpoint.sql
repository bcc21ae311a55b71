-- Lets Postgres use older segments of its log again.
CHECKPOINT
