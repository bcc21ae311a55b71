-- What budgets would suit expectations. $1 stack, $2 actor or NULL, $3 most.
SELECT *
FROM budget_recommendations
WHERE stack = $1 AND ($2::text IS NULL OR actor_id = $2)
ORDER BY actor_id, expectation_id
LIMIT $3
