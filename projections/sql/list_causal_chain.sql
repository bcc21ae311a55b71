-- A finding and what explains it, step by step. $1 stack, $2 key, $3 most steps.
SELECT * FROM finding_causal_chain($2, $3, $1)
