-- What expectations promise, and keep: those below their objective first.
-- $1 stack, $2 actor or NULL, $3 most.
SELECT *
FROM service_levels
WHERE stack = $1 AND ($2::text IS NULL OR actor_id = $2)
ORDER BY is_kept, actor_id, expectation_id
LIMIT $3
