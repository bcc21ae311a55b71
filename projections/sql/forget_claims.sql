-- What we thought was held, before the bucket says again what is.
-- $1 stack, $2 now, an array of one.
UPDATE work_claims SET state = 'done', finished_at = forgotten.at
FROM unnest($2::timestamptz[]) AS forgotten (at)
WHERE stack = $1 AND state = 'claimed'
