-- Which of some outputs are there.
-- $1 stack, $2 their keys.
SELECT output_key AS id, 0::bigint AS number FROM outputs
WHERE stack = $1 AND output_key = ANY ($2::text[])
