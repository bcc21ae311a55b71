-- One dead letter, and what the output that it is about is by now. $1 stack, $2 key.
SELECT letter.*, output.status AS output_status
FROM dead_letters AS letter
LEFT JOIN outputs AS output USING (stack, output_key)
WHERE letter.stack = $1 AND letter.letter_key = $2
