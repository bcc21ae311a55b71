-- Whether Postgres keeps older segments of its log for later ones, as they are.
SHOW wal_recycle
