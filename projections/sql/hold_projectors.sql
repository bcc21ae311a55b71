-- Keeps the projectors of a stack waiting until this transaction has ended: what they write is either
-- seen by it, a hold above all, or waits. Whoever deletes takes turns with others that do.
-- $1 stack.
WITH turn AS (
    SELECT pg_advisory_xact_lock(hashtextextended('vigil retention ' || $1, 0))
)
SELECT projection
FROM projection_checkpoints, turn
WHERE stack = $1
ORDER BY projection
FOR SHARE OF projection_checkpoints
