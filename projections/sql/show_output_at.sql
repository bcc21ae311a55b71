-- One output as it was at a time. $1 stack, $2 key, $3 the time.
SELECT $1::text AS stack, output.*
FROM outputs_at($1, $3) AS output
WHERE output.output_key = $2
