-- Which of some dead letters are there.
-- $1 stack, $2 their keys.
SELECT letter_key AS id, 0::bigint AS number FROM dead_letters
WHERE stack = $1 AND letter_key = ANY ($2::text[])
