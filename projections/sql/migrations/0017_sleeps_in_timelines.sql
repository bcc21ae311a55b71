-- A sleep is no wait for anybody, and an episode without a subject is about nothing.

CREATE OR REPLACE VIEW episode_timeline AS
WITH happened AS (
    SELECT
        stack, episode_id, queued_at AS at, 0 AS turn, 0 AS place, 'episode_opened' AS kind,
        NULL::bigint AS step_no, NULL AS name,
        concat_ws(
            ' ',
            CASE WHEN forked_from IS NOT NULL THEN format(
                'forked by %s at step %s of %s,', forked_by, forked_at_step, forked_from
            ) END,
            'opened by',
            CASE trigger_type
                WHEN 'event' THEN 'event ' || (trigger_ref ->> 'event_type')
                WHEN 'schedule' THEN 'schedule ' || (trigger_ref ->> 'schedule')
                WHEN 'workflow' THEN format('step %s of workflow %s', workflow_step_id, workflow_id)
                ELSE concat_ws(
                    ': ', trigger_ref ->> 'requested_by', nullif(trigger_ref ->> 'reason', '')
                )
            END,
            'about ' || CASE WHEN subject_id <> '' THEN concat_ws(' ', subject_kind, subject_id) END
        ) AS says,
        coalesce(
            forked_by, CASE trigger_type WHEN 'manual' THEN trigger_ref ->> 'requested_by' END
        ) AS person,
        opened_by AS node, NULL::bigint AS cost_ms, NULL AS error_class, NULL AS error_detail,
        jsonb_strip_nulls(
            jsonb_build_object('trigger', trigger_ref, 'budget', budget, 'mode', mode)
        ) AS details,
        journal_seq
    FROM episodes
    UNION ALL
    SELECT
        stack, episode_id, started_at, 1, 1, 'episode_started', NULL, NULL,
        concat_ws(' on ', 'started', first_node), NULL, first_node, NULL, NULL, NULL,
        '{"attempt": 1}', journal_seq
    FROM episodes
    WHERE started_at IS NOT NULL
    UNION ALL
    SELECT
        stack, episode_id, started_at, 1, attempt, 'episode_started', NULL, NULL,
        format(
            '%s on %s (attempt %s)',
            CASE WHEN is_fresh THEN 'began anew' ELSE 'continued' END, node, attempt
        ),
        NULL, node, NULL, NULL, NULL, jsonb_build_object('attempt', attempt, 'fresh', is_fresh),
        journal_seq
    FROM episode_attempts
    UNION ALL
    SELECT
        stack, episode_id, created_at, 2, step_no * 3, kind, step_no, tool_name,
        concat_ws(
            ': ', concat_ws(' ', kind, tool_name),
            CASE state WHEN 'announced' THEN 'begun, and its outcome is not recorded' END,
            error_class, last_line(error_detail)
        ),
        NULL, NULL, cost_ms, error_class, error_detail,
        jsonb_strip_nulls(jsonb_build_object(
            'args', args_redacted, 'result', result, 'model', model,
            'tokens', nullif(cost_tokens, 0), 'idempotency_key', side_effect_key
        )),
        journal_seq
    FROM episode_steps AS step
    -- An answer is shown as the end of what was waited for.
    WHERE kind NOT IN ('approval', 'wait') OR NOT EXISTS (
        SELECT FROM episode_blocks AS block
        WHERE (block.stack, block.episode_id, block.step_no)
            = (step.stack, step.episode_id, step.step_no)
    )
    UNION ALL
    SELECT
        stack, episode_id, blocked_at, 2, step_no * 3 + 1,
        CASE reason WHEN 'approval' THEN 'approval_requested' ELSE 'wait_started' END,
        step_no, ref,
        CASE
            WHEN reason = 'approval' THEN concat_ws(': ', 'asks for approval', summary)
            WHEN ref <> '' THEN 'waits for ' || ref
            ELSE 'sleeps until ' || to_char(
                expires_at AT TIME ZONE 'UTC',
                CASE
                    WHEN (expires_at AT TIME ZONE 'UTC')::date
                        = (blocked_at AT TIME ZONE 'UTC')::date
                    THEN 'HH24:MI:SS'
                    ELSE 'YYYY-MM-DD HH24:MI:SS'
                END
            )
        END,
        NULL, NULL, NULL, NULL, NULL,
        CASE WHEN reason = 'approval' OR ref <> '' THEN jsonb_strip_nulls(jsonb_build_object(
            'plan', plan, 'plan_hash', plan_hash, 'approvers', nullif(approvers, '{}'),
            'expires_at', expires_at, 'on_expiry', on_expiry
        )) ELSE '{}' END,
        journal_seq
    FROM episode_blocks
    UNION ALL
    SELECT
        block.stack, block.episode_id, block.resolved_at, 2, block.step_no * 3 + 2,
        CASE block.reason WHEN 'approval' THEN 'approval_resolved' ELSE 'wait_resolved' END,
        block.step_no, block.ref,
        CASE
            WHEN block.reason = 'wait' AND block.ref = '' AND block.resolution = 'expired'
            THEN 'goes on'
            ELSE concat_ws(
                ': ',
                concat_ws(' by ', concat_ws(' ', block.ref, block.resolution), block.resolved_by),
                block.resolved_reason
            )
        END,
        block.resolved_by, NULL, NULL, step.error_class, step.error_detail,
        jsonb_strip_nulls(jsonb_build_object('result', step.result)), block.journal_seq
    FROM episode_blocks AS block
    LEFT JOIN episode_steps AS step USING (stack, episode_id, step_no)
    WHERE block.resolved_at IS NOT NULL
    UNION ALL
    SELECT
        stack, episode_id, at, 3, event_no, kind, NULL, finding_key,
        concat_ws(
            ': ', format('%s %s (%s)', kind, finding_key, severity), coalesce(reason, summary)
        ),
        person, NULL, NULL, NULL, NULL,
        jsonb_strip_nulls(jsonb_build_object(
            'status', status, 'severity', severity, 'confidence', confidence,
            'evidence', evidence_refs
        )),
        journal_seq
    FROM finding_events
    WHERE episode_id IS NOT NULL
    UNION ALL
    SELECT
        event.stack, output.episode_id, event.at, 3, event.event_no, event.kind, NULL,
        event.output_key,
        concat_ws(
            ': ',
            concat_ws(
                ' ', event.kind, event.output_key, 'as ' || event.delivered_ref,
                'by ' || event.person
            ),
            event.error_class, last_line(event.error_detail), event.reason
        ),
        event.person, event.node, NULL, event.error_class, event.error_detail,
        jsonb_strip_nulls(jsonb_build_object(
            'adapter', output.adapter, 'attempt', event.attempt,
            'next_attempt_at', event.next_attempt_at
        )),
        event.journal_seq
    FROM outputs AS output
    JOIN output_events AS event USING (stack, output_key)
    WHERE output.episode_id IS NOT NULL
    UNION ALL
    SELECT
        stack, episode_id, finished_at, 4, 0, 'episode_finished', NULL, NULL,
        concat_ws(': ', status, error_class, last_line(error_detail), summary),
        NULL, node, wall_used_ms, error_class, error_detail,
        jsonb_strip_nulls(jsonb_build_object(
            'status', status, 'classification', classification, 'confidence', confidence,
            'turns', turns_used, 'tokens', tokens_used, 'metadata', metadata
        )),
        journal_seq
    FROM episodes
    WHERE finished_at IS NOT NULL
)
SELECT
    stack, episode_id,
    row_number() OVER (
        PARTITION BY stack, episode_id ORDER BY at, turn, place, journal_seq
    ) AS position,
    at, kind, step_no, name, says, person, node, cost_ms, error_class, error_detail, details,
    journal_seq
FROM happened;
