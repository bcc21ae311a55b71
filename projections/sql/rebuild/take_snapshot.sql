-- The first statement of a transaction, which decides what a repeatable read sees. Joins of whole
-- tables want memory.
SELECT set_config('work_mem', '128MB', true)
