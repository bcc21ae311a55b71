-- Deletes raises of findings with their history.
-- $1 stack, $2 their keys, $3 the number of each raise.
WITH old AS (
    SELECT * FROM unnest($2::text[], $3::bigint[]) AS old (finding_key, raise_no)
), gone AS (
    DELETE FROM findings
    USING old
    WHERE findings.stack = $1
        AND findings.finding_key = old.finding_key AND findings.raise_no = old.raise_no
    RETURNING 1
), events AS (
    DELETE FROM finding_events
    USING old
    WHERE finding_events.stack = $1
        AND finding_events.finding_key = old.finding_key
        AND finding_events.raise_no = old.raise_no
    RETURNING 1
)
SELECT 'findings' AS what, count(*) AS count FROM gone
UNION ALL
SELECT 'finding_events', count(*) FROM events
