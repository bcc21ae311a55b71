-- How many active findings there are of each severity, the worst first. $1 stack.
SELECT severity::text AS severity, count(*) AS findings
FROM findings
WHERE stack = $1 AND status = 'active'
GROUP BY findings.severity
ORDER BY findings.severity DESC
