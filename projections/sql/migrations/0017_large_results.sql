-- Results of tools that the object store has instead of the journal.

ALTER TABLE episode_steps ADD COLUMN result_size_bytes bigint, ADD COLUMN result_digest text;
COMMENT ON COLUMN episode_steps.result_size_bytes IS
    'Size of a large result, which the object store has, as JSON. NULL: the result is not large.';
COMMENT ON COLUMN episode_steps.result_digest IS
    'SHA-256 of a large result, in hex: its name in the object store. NULL: the result is not large, or people may not see all of it.';
