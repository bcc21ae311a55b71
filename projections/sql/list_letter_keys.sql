-- The keys of dead letters that begin so. $1 stack, $2 beginning, $3 most.
SELECT letter_key
FROM dead_letters
WHERE stack = $1 AND starts_with(letter_key, $2)
ORDER BY letter_key
LIMIT $3
