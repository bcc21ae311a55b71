-- How many orders there are of each change. $1 stack, $2 node or NULL, $3 actor or NULL,
-- $4 those given by this time, or NULL.
SELECT change, count(*) AS orders
FROM orders
WHERE stack = $1
    AND ($2::text IS NULL OR node = $2)
    AND ($3::text IS NULL OR actor_id = $3)
    AND ($4::timestamptz IS NULL OR at <= $4)
GROUP BY change
ORDER BY change
