-- How much is over due: findings, by why they stay if they do.
-- $1 stack, $2 actor, $3 state, $4 before when it ended.
SELECT stays, count(*) AS count, min(ended_at) AS since
FROM old_findings($1, $2, $3, $4)
GROUP BY stays
