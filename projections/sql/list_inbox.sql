-- What waits for a person, the oldest first. $1 stack, $2 actor or NULL, $3 most.
SELECT
    kind, id, actor_id, expectation_id, summary, since, expires_at, what_to_do, journal_seq
FROM inbox
WHERE stack = $1 AND ($2::text IS NULL OR actor_id = $2)
ORDER BY since, kind, id
LIMIT $3
