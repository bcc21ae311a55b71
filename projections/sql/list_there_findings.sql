-- Which of some raises of findings are there.
-- $1 stack, $2 their keys, $3 the number of each raise.
SELECT finding_key AS id, raise_no AS number FROM findings
JOIN unnest($2::text[], $3::bigint[]) AS old (finding_key, raise_no) USING (finding_key, raise_no)
WHERE findings.stack = $1
