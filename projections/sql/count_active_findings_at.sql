-- How many findings of each severity were active at a time, the worst first. $1 stack, $2 the time.
SELECT then_.severity::text AS severity, count(*) AS findings
FROM findings_at($1, $2, true) AS then_
GROUP BY then_.severity
ORDER BY then_.severity DESC
