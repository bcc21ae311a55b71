-- One dead letter. $1 stack, $2 key.
SELECT * FROM dead_letters WHERE stack = $1 AND letter_key = $2
