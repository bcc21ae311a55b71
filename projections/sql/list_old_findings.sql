-- What is over due, the longest ago first: findings, and why each stays if it does.
-- $1 stack, $2 actor, $3 state, $4 before when it ended, $5 and $6 those after this end and this id
-- and $7 this number, or NULL, $8 most.
SELECT id, number, ended_at, stays
FROM old_findings($1, $2, $3, $4)
WHERE ended_at >= coalesce($5::timestamptz, '-infinity')
    AND ($5 IS NULL OR (ended_at, id, number) > ($5, $6::text, $7::bigint))
ORDER BY ended_at, id, number
LIMIT $8
