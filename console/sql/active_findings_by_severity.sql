-- What is true now, and how bad is it?
SELECT severity, count(*) AS findings, max(summary) AS for_example
FROM vigil.active_findings
GROUP BY severity
ORDER BY severity DESC
