-- Findings in full: when they end, how their age makes them worse, what people do to them, and
-- what explains them.

ALTER TABLE findings
    ADD COLUMN cleared_by text,
    ADD COLUMN ttl_s double precision,
    ADD COLUMN expires_at timestamptz,
    ADD COLUMN escalated_to severity,
    ADD COLUMN acknowledged_by text,
    ADD COLUMN acknowledged_at timestamptz,
    ADD COLUMN superseded_at timestamptz;
COMMENT ON COLUMN findings.raise_no IS 'From 1; a raise after its end is a new one.';
COMMENT ON COLUMN findings.status IS
    'active; cleared: somebody has said that it no longer holds; expired: nobody has said for its whole time to live that it holds; superseded: it had ended, and was raised anew since.';
COMMENT ON COLUMN findings.severity IS
    'How bad it is: low < medium < high < critical. Its age may have made it worse.';
COMMENT ON COLUMN findings.updated_at IS
    'When it was last raised, refreshed, changed or ended. Notes and acknowledgements do not count.';
COMMENT ON COLUMN findings.cleared_by_episode_id IS
    'The episode that cleared it; NULL when a person did, or it expired.';
COMMENT ON COLUMN findings.cleared_at IS 'When it ended: was cleared, or expired.';
COMMENT ON COLUMN findings.cleared_by IS 'The person who cleared it.';
COMMENT ON COLUMN findings.ttl_s IS
    'Seconds from each raise or update to its end. NULL: its end does not move, if it has one.';
COMMENT ON COLUMN findings.expires_at IS
    'When it ends unless something happens before. NULL: it waits to be cleared.';
COMMENT ON COLUMN findings.escalated_to IS
    'What its age has made of its severity, which is never less from then on.';
COMMENT ON COLUMN findings.acknowledged_by IS 'The person who has said that they know of it.';
COMMENT ON COLUMN findings.acknowledged_at IS 'When they said so.';
COMMENT ON COLUMN findings.superseded_at IS 'When it was raised anew.';

-- For those who ask what a finding explains.
CREATE INDEX findings_by_cause ON findings USING hash (caused_by_key);
CREATE INDEX findings_expiring ON findings (stack, expires_at) WHERE status = 'active';


ALTER TABLE finding_events
    ADD COLUMN from_severity severity,
    ADD COLUMN person text,
    ADD COLUMN reason text,
    ADD COLUMN expires_at timestamptz;
COMMENT ON COLUMN finding_events.kind IS
    'finding_raised, finding_updated, finding_cleared, finding_expired, finding_escalated, finding_acknowledged or finding_noted.';
COMMENT ON COLUMN finding_events.episode_id IS
    'The episode that caused it; NULL when a person did, or its age.';
COMMENT ON COLUMN finding_events.from_severity IS
    'Its severity until then, where its age has made it worse.';
COMMENT ON COLUMN finding_events.person IS 'The person who did it; NULL: an episode or its age did.';
COMMENT ON COLUMN finding_events.reason IS 'Why it was cleared or acknowledged, or what was noted.';
COMMENT ON COLUMN finding_events.expires_at IS 'When it was to end from then on.';


-- What the rows would say had they been so from the beginning.

UPDATE finding_events AS event SET reason = finding.cleared_reason
FROM findings AS finding
WHERE event.kind = 'finding_cleared'
    AND (event.stack, event.finding_key, event.raise_no)
        = (finding.stack, finding.finding_key, finding.raise_no);

UPDATE findings AS earlier SET
    status = 'superseded', superseded_at = raised.at, journal_seq = raised.journal_seq
FROM finding_events AS raised
WHERE raised.kind = 'finding_raised'
    AND (raised.stack, raised.finding_key, raised.raise_no)
        = (earlier.stack, earlier.finding_key, earlier.raise_no + 1);


CREATE OR REPLACE VIEW active_findings AS
SELECT
    stack, finding_key, raise_no, severity, class, summary, confidence, subject_kind,
    subject_id, actor_id, expectation_id, caused_by_key, raised_by_episode_id, raised_at,
    updated_at, evidence_refs, journal_seq, expires_at, escalated_to, acknowledged_by, acknowledged_at
FROM findings
WHERE status = 'active';
COMMENT ON COLUMN active_findings.expires_at IS
    'When it ends unless something happens before. NULL: it waits to be cleared.';
COMMENT ON COLUMN active_findings.escalated_to IS
    'What its age has made of its severity, which is never less from then on.';
COMMENT ON COLUMN active_findings.acknowledged_by IS
    'The person who has said that they know of it.';
COMMENT ON COLUMN active_findings.acknowledged_at IS 'When they said so.';


-- What explains what. The latest raise of each finding counts, whether it is active or not. Nobody
-- keeps findings from explaining each other in a circle: no key comes twice.

CREATE FUNCTION finding_caused_by(key text, in_stack text DEFAULT NULL)
RETURNS SETOF findings
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT finding.* FROM findings AS finding
    WHERE finding.caused_by_key = finding_caused_by.key
        AND (finding_caused_by.in_stack IS NULL OR finding.stack = finding_caused_by.in_stack)
        AND finding.status <> 'superseded'
    ORDER BY finding.raised_at, finding.finding_key;
END;
COMMENT ON FUNCTION finding_caused_by(text, text) IS
    'The findings that name this one as their cause, the oldest first; of one stack, if it is said.';

CREATE FUNCTION finding_causal_chain(
    key text, depth_max integer DEFAULT 10, in_stack text DEFAULT NULL
)
RETURNS TABLE (
    depth integer, stack text, finding_key text, raise_no bigint, status text, class text,
    severity severity, summary text, caused_by_key text
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH RECURSIVE chain AS (
        SELECT
            0 AS depth, finding.stack, finding.finding_key, finding.raise_no, finding.status,
            finding.class, finding.severity, finding.summary, finding.caused_by_key
        FROM findings AS finding
        WHERE finding.finding_key = finding_causal_chain.key
            AND finding.status <> 'superseded'
            AND (
                finding_causal_chain.in_stack IS NULL
                OR finding.stack = finding_causal_chain.in_stack
            )
        UNION ALL
        SELECT
            chain.depth + 1, cause.stack, cause.finding_key, cause.raise_no, cause.status,
            cause.class, cause.severity, cause.summary, cause.caused_by_key
        FROM chain JOIN findings AS cause
            ON cause.stack = chain.stack AND cause.finding_key = chain.caused_by_key
        WHERE cause.status <> 'superseded' AND chain.depth < finding_causal_chain.depth_max
    ) CYCLE finding_key SET is_cycle USING path
    SELECT
        chain.depth, chain.stack, chain.finding_key, chain.raise_no, chain.status, chain.class,
        chain.severity, chain.summary, chain.caused_by_key
    FROM chain
    WHERE NOT chain.is_cycle
    ORDER BY chain.stack, chain.depth;
END;
COMMENT ON FUNCTION finding_causal_chain(text, integer, text) IS
    'The finding at depth 0, then what explains it, step by step, up to a depth (10); of one stack, if it is said.';

CREATE FUNCTION finding_root_cause(key text, in_stack text DEFAULT NULL)
RETURNS TABLE (
    depth integer, stack text, finding_key text, raise_no bigint, status text, class text,
    severity severity, summary text, caused_by_key text
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT DISTINCT ON (chain.stack) chain.*
    FROM finding_causal_chain(
        finding_root_cause.key, 100, finding_root_cause.in_stack
    ) AS chain
    ORDER BY chain.stack, chain.depth DESC;
END;
COMMENT ON FUNCTION finding_root_cause(text, text) IS
    'The last of the chain of up to 100 findings that explain this one: itself, if none does; of one stack, if it is said.';
