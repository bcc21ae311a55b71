-- What is true now, and how bad is it?
SELECT severity, count(*) AS findings, max(summary) AS for_example
FROM vigil.active_findings
WHERE stack = $1
GROUP BY severity
ORDER BY severity DESC
