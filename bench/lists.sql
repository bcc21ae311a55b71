-- A week of a stack, as its rows: $1 stack, $2 how many episodes, $3 when the week ended.
-- Of a thousand episodes 30 failed and 10 were canceled; 10 took up to two days, since they waited for a
-- person. A hundred still wait, 20 run, 5 are queued, 10 failed in part.
WITH made AS (
    SELECT
        number, $2::bigint - number AS back,
        $3::timestamptz - interval '7 days' * ($2::bigint - number) / $2::bigint AS queued_at,
        md5(number::text)::uuid AS id,
        CASE
            WHEN number % 100 = 7 THEN interval '1 minute' * (1 + number * 7919 % 2880)
            ELSE interval '1 second' * (1 + number * 7919 % 60)
        END AS took
    FROM generate_series(1, $2::bigint) AS number
), states AS (
    SELECT
        *,
        CASE
            WHEN back < 5 THEN 'queued'
            WHEN back < 25 THEN 'running'
            WHEN number % ($2::bigint / 100) = 11 THEN 'blocked'
            WHEN number % ($2::bigint / 10) = 13 THEN 'partially_failed'
            WHEN number % 1000 < 30 THEN 'failed'
            WHEN number % 1000 < 40 THEN 'canceled'
            WHEN queued_at + took > $3::timestamptz THEN 'running'
            ELSE 'done'
        END AS status
    FROM made
), episodes_made AS (
    INSERT INTO episodes (
        stack, episode_id, journal_seq, actor_id, expectation_id, generation, trigger_type,
        trigger_ref, subject_kind, subject_id, dedupe_key, budget, queued_at, status, node,
        attempts, started_at, finished_at, turns_used, tokens_used, summary, error_class,
        error_detail, first_node, blocked_by
    )
    SELECT
        $1, id, number, 'actor-' || number % 20, 'expectation-' || number % 60, 0, 'event', '{}',
        'host', 'host-' || number % 5000, number::text, '{}', queued_at, status,
        'node-' || number % 3,
        CASE WHEN status = 'queued' THEN 0 ELSE 1 END,
        CASE WHEN status <> 'queued' THEN queued_at + interval '10 milliseconds' END,
        CASE
            WHEN status NOT IN ('queued', 'running', 'blocked')
                THEN least(queued_at + took, $3::timestamptz)
        END,
        2, 0, 'the disk of host-' || number % 5000 || ' has room',
        CASE WHEN status = 'failed' THEN 'error-' || number % 7 END,
        CASE WHEN status = 'failed' THEN 'nobody answered' END,
        'node-' || number % 3,
        CASE WHEN status = 'blocked' THEN 'approval' END
    FROM states
), steps_made AS (
    INSERT INTO episode_steps (
        stack, episode_id, step_no, journal_seq, kind, state, tool_name, created_at, error_class
    )
    SELECT
        $1, id, 1, number, 'tool_call', 'recorded', 'disk.read', queued_at,
        CASE WHEN status = 'failed' THEN 'error-' || number % 7 END
    FROM states
), blocks_made AS (
    INSERT INTO episode_blocks (
        stack, episode_id, step_no, journal_seq, reason, plan, summary, blocked_at, resolved_at
    )
    SELECT
        $1, id, 1, number, 'approval', '{}', 'may it be restarted?', queued_at,
        CASE WHEN status <> 'blocked' THEN queued_at + took END
    FROM states
    WHERE status = 'blocked' OR number % 100 = 7
), findings_made AS (
    INSERT INTO findings (
        stack, finding_key, raise_no, journal_seq, status, actor_id, expectation_id, class,
        severity, confidence, summary, subject_kind, subject_id, raised_at, updated_at, cleared_at
    )
    SELECT
        $1, 'host:disk:' || number, 1, number,
        CASE WHEN number % 1000 = 50 THEN 'active' ELSE 'cleared' END,
        'actor-' || number % 20, 'expectation-' || number % 60, 'disk_full', 'high', 1,
        'the disk is nearly full', 'host', 'host-' || number % 5000, queued_at,
        CASE WHEN number % 1000 <> 50 THEN queued_at + took ELSE queued_at END,
        CASE WHEN number % 1000 <> 50 THEN queued_at + took END
    FROM states
    WHERE number % 50 = 0
), raises_made AS (
    INSERT INTO finding_events (
        stack, finding_key, journal_seq, event_no, kind, raise_no, status, severity, confidence,
        summary, at
    )
    SELECT
        $1, 'host:disk:' || number, number + part.event_no, part.event_no, part.kind, 1,
        part.status, 'high', 1, 'the disk is nearly full', queued_at + took * part.event_no
    FROM states
    CROSS JOIN (
        VALUES (0, 'finding_raised', 'active'), (1, 'finding_cleared', 'cleared')
    ) AS part (event_no, kind, status)
    WHERE number % 50 = 0 AND (part.event_no = 0 OR number % 1000 <> 50)
)
INSERT INTO outputs (
    stack, output_key, journal_seq, proposal_no, episode_id, actor_id, expectation_id, adapter,
    status, payload, summary, attempts, created_at, updated_at, delivered_at
)
SELECT
    $1, 'mail:' || number, number, 1, id, 'actor-' || number % 20, 'expectation-' || number % 60,
    'mail', CASE WHEN number % 1000 = 20 THEN 'failed' ELSE 'delivered' END, '{}', 'a mail', 1,
    queued_at, queued_at,
    CASE WHEN number % 1000 <> 20 THEN queued_at END
FROM states
WHERE number % 20 = 0
