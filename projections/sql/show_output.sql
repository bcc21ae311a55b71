-- One output. $1 stack, $2 key.
SELECT * FROM outputs WHERE stack = $1 AND output_key = $2
