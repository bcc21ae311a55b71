-- Whether this connection alone may now move rows of the schema. It may until it ends.
SELECT pg_try_advisory_lock(hashtextextended('vigil.compact.' || current_schema(), 0))
