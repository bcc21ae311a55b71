-- The latest raise of one finding. $1 stack, $2 key.
SELECT * FROM findings WHERE stack = $1 AND finding_key = $2 ORDER BY raise_no DESC LIMIT 1
