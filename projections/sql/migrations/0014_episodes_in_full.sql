-- What an episode used, what it belongs to, and all that it did, in order.

ALTER TABLE episodes
    ADD COLUMN metadata jsonb,
    ADD COLUMN model text,
    ADD COLUMN wall_used_ms bigint NOT NULL DEFAULT 0,
    ADD COLUMN first_node text,
    ADD COLUMN workflow_id text,
    ADD COLUMN workflow_instance_id uuid,
    ADD COLUMN workflow_step_id text,
    ADD COLUMN workflow_step_no bigint,
    ADD COLUMN workflow_item bigint,
    ADD COLUMN forked_from uuid,
    ADD COLUMN forked_at_step bigint,
    ADD COLUMN forked_by text,
    ADD COLUMN forked_reason text;
COMMENT ON COLUMN episodes.metadata IS
    'What the fire by hand and the strategy said of it: an object; the strategy''s values win. NULL: nothing.';
COMMENT ON COLUMN episodes.model IS 'The model that answered first. NULL: none did.';
COMMENT ON COLUMN episodes.wall_used_ms IS
    'How long its steps took, over all attempts, in milliseconds. Waiting for people or events does not count.';
COMMENT ON COLUMN episodes.first_node IS 'The node that first started it.';
COMMENT ON COLUMN episodes.workflow_id IS 'The workflow that it is a step of. NULL: none.';
COMMENT ON COLUMN episodes.workflow_instance_id IS
    'The instance of the workflow that it is a step of. NULL: none.';
COMMENT ON COLUMN episodes.workflow_step_id IS 'The name of that step. NULL: it is no step.';
COMMENT ON COLUMN episodes.workflow_step_no IS
    'How many steps lie before that step, on the longest way to it. NULL: it is no step.';
COMMENT ON COLUMN episodes.workflow_item IS
    'Which item of that step, from 0. NULL: it is no step.';
COMMENT ON COLUMN episodes.forked_from IS
    'The episode whose past it began with. NULL: it is no fork.';
COMMENT ON COLUMN episodes.forked_at_step IS 'The last step that both have. NULL: it is no fork.';
COMMENT ON COLUMN episodes.forked_by IS 'Who forked it. NULL: it is no fork.';
COMMENT ON COLUMN episodes.forked_reason IS 'Why, in words.';

ALTER TABLE episode_steps ADD COLUMN result_size_bytes bigint, ADD COLUMN result_digest text;
COMMENT ON COLUMN episode_steps.result_size_bytes IS
    'Size of a large result, which the object store has, as JSON. NULL: the result is not large.';
COMMENT ON COLUMN episode_steps.result_digest IS
    'SHA-256 of a large result, in hex: its name in the object store. NULL: the result is not large, or people may not see all of it.';


CREATE TABLE episode_attempts (
    stack text NOT NULL,
    episode_id uuid NOT NULL,
    attempt bigint NOT NULL,
    journal_seq bigint NOT NULL,
    node text NOT NULL,
    started_at timestamptz NOT NULL,
    is_fresh boolean NOT NULL,
    PRIMARY KEY (stack, episode_id, attempt)
);
COMMENT ON TABLE episode_attempts IS
    'Starts of episodes after the first one: takeovers, and those that follow a wait.';
COMMENT ON COLUMN episode_attempts.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episode_attempts.episode_id IS 'The episode that was started again.';
COMMENT ON COLUMN episode_attempts.attempt IS 'From 2: the first start is in `episodes`.';
COMMENT ON COLUMN episode_attempts.journal_seq IS
    'Sequence of its commit, in the journal or in its partition of it.';
COMMENT ON COLUMN episode_attempts.node IS 'The node that started it.';
COMMENT ON COLUMN episode_attempts.started_at IS 'When it was started.';
COMMENT ON COLUMN episode_attempts.is_fresh IS
    'Whether its strategy began anew. false: it continued after the last recorded step.';


-- What the rows would say had they been so from the beginning, except attempts: those are not in any row.

UPDATE episodes SET
    workflow_id = nullif(trigger_ref ->> 'workflow_id', ''),
    workflow_instance_id = CASE
        WHEN trigger_ref ->> 'workflow_instance_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
        THEN (trigger_ref ->> 'workflow_instance_id')::uuid
    END,
    workflow_step_id = trigger_ref ->> 'workflow_step_id',
    workflow_step_no = coalesce((trigger_ref ->> 'workflow_step_no')::bigint, 0),
    workflow_item = coalesce((trigger_ref ->> 'item')::bigint, 0)
WHERE trigger_type = 'workflow';

UPDATE episodes SET first_node = node WHERE attempts = 1;

UPDATE episodes AS episode SET wall_used_ms = step.took_ms, model = step.model
FROM (
    SELECT
        stack, episode_id, coalesce(sum(cost_ms), 0) AS took_ms,
        (array_agg(model ORDER BY step_no) FILTER (WHERE model IS NOT NULL))[1] AS model
    FROM episode_steps
    GROUP BY stack, episode_id
) AS step
WHERE (episode.stack, episode.episode_id) = (step.stack, step.episode_id);


CREATE FUNCTION last_line(value text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN regexp_replace(rtrim(value, E' \n'), '^.*\n', '');
COMMENT ON FUNCTION last_line(text) IS
    'The last line of a text: the cause, where it is a traceback.';

CREATE VIEW episode_timeline AS
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
            -- guard: no-subject-about-nothing
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
            'args', args_redacted, 'result', result, 'result_size_bytes', result_size_bytes,
            'result_digest', result_digest, 'model', model,
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
            WHEN ref <> '' THEN 'waits for ' || ref  -- guard: sleep-told-as-sleep
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
COMMENT ON VIEW episode_timeline IS
    'All that an episode did, in order: how it was opened and started, its steps, waits, approvals, findings, outputs, and its end.';
COMMENT ON COLUMN episode_timeline.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episode_timeline.episode_id IS 'The episode.';
COMMENT ON COLUMN episode_timeline.position IS
    'Its place in the order of time, from 1. It may grow while the tables catch up.';
COMMENT ON COLUMN episode_timeline.at IS 'When it happened, by the clock of the node.';
COMMENT ON COLUMN episode_timeline.kind IS
    'episode_opened, episode_started, episode_finished; the kind of a step, such as tool_call; approval_requested, approval_resolved, wait_started, wait_resolved; or the kind of a change of a finding or an output.';
COMMENT ON COLUMN episode_timeline.step_no IS
    'The step that it is, or that its answer is. NULL: it is about none.';
COMMENT ON COLUMN episode_timeline.name IS
    'The tool, the reference, or the key of the finding or output. NULL: none.';
COMMENT ON COLUMN episode_timeline.says IS 'What happened, in one line.';
COMMENT ON COLUMN episode_timeline.person IS 'Who did it. NULL: no person.';
COMMENT ON COLUMN episode_timeline.node IS 'The node that did it. NULL: it is not recorded for this.';
COMMENT ON COLUMN episode_timeline.cost_ms IS
    'How long the step took, in milliseconds; of the end, all of them. NULL: it is neither.';
COMMENT ON COLUMN episode_timeline.error_class IS 'Why it failed: a stable class.';
COMMENT ON COLUMN episode_timeline.error_detail IS 'Why it failed, in words.';
COMMENT ON COLUMN episode_timeline.details IS
    'The rest of what is known: the trigger, arguments and result, the plan, evidence, …';
COMMENT ON COLUMN episode_timeline.journal_seq IS
    'Sequence of the commit that last changed its row, in the stream of what it is about.';
