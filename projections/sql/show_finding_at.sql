-- The latest raise of one finding as it was at a time, with what the list of the past lacks.
-- $1 stack, $2 key, $3 the time.
SELECT
    $1::text AS stack, then_.*,
    (
        SELECT happened.evidence_refs
        FROM finding_events AS happened
        WHERE happened.stack = $1 AND happened.finding_key = $2
            AND happened.raise_no = then_.raise_no AND happened.at <= $3
            AND happened.evidence_refs IS NOT NULL
        ORDER BY happened.journal_seq DESC, happened.event_no DESC
        LIMIT 1
    ) AS evidence_refs,
    finding.ttl_s,
    CASE WHEN finding.acknowledged_at <= $3 THEN finding.acknowledged_at END AS acknowledged_at,
    NULL::timestamptz AS superseded_at,
    CASE
        WHEN then_.status <> 'active' THEN finding.cleared_by_episode_id
    END AS cleared_by_episode_id
FROM findings_at($1, $3) AS then_
JOIN findings AS finding
    ON finding.stack = $1 AND finding.finding_key = then_.finding_key
    AND finding.raise_no = then_.raise_no
WHERE then_.finding_key = $2
ORDER BY then_.raise_no DESC
LIMIT 1
