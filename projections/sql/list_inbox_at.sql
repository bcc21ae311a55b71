-- What waited for a person at a time, the oldest first.
-- $1 stack, $2 the time, $3 kinds or NULL, $4 actors or NULL, $5 to $9 those after what waited since
-- this time, of this kind, with this id, expectation and item, or NULL, $10 most.
SELECT *
FROM inbox_at($1, $2)
WHERE ($3::text[] IS NULL OR kind = ANY($3))
    AND ($4::text[] IS NULL OR actor_id = ANY($4))
    AND (
        $5::timestamptz IS NULL
        OR (since, kind, id, coalesce(expectation_id, ''), coalesce(item, 0))
            > ($5, $6::text, $7::text, coalesce($8::text, ''), coalesce($9::bigint, 0))  -- way
    )
ORDER BY
    since ASC, kind ASC, id ASC,  -- way
    coalesce(expectation_id, '') ASC, coalesce(item, 0) ASC  -- way
LIMIT $10
