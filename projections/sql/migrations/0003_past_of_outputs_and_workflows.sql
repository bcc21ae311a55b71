-- Outputs and workflows as they were at a time: what rows have to keep for it, and the functions.

ALTER TABLE output_events ADD COLUMN status text;
COMMENT ON COLUMN output_events.status IS 'The output''s status from then on.';

UPDATE output_events AS happened SET status = CASE happened.kind
    WHEN 'output_approval_given' THEN 'awaiting_approval'
    WHEN 'output_rejected' THEN 'rejected'
    WHEN 'output_delivered' THEN 'delivered'
    WHEN 'output_failed' THEN 'failed'
    WHEN 'output_canceled' THEN 'canceled'
    ELSE CASE WHEN output.asked_at = happened.at THEN 'awaiting_approval' ELSE 'proposed' END
END
FROM outputs AS output
WHERE output.stack = happened.stack AND output.output_key = happened.output_key;

ALTER TABLE workflow_instances
    ADD COLUMN stopping_at timestamptz,
    ADD COLUMN compensating_at timestamptz;
COMMENT ON COLUMN workflow_instances.stopping_at IS
    'When it began to stop, as a step had failed or somebody canceled it. NULL: it did not.';
COMMENT ON COLUMN workflow_instances.compensating_at IS
    'When the first of its finished steps began to be undone. NULL: none was.';

ALTER TABLE workflow_steps
    ADD COLUMN placed_at timestamptz,
    ADD COLUMN begun_at timestamptz,
    ADD COLUMN compensation_begun_at timestamptz,
    ADD COLUMN compensation_ended_at timestamptz;
COMMENT ON COLUMN workflow_steps.placed_at IS 'When it became known that there is this item.';
COMMENT ON COLUMN workflow_steps.begun_at IS 'When its first attempt began. NULL: none has.';
COMMENT ON COLUMN workflow_steps.compensation_begun_at IS
    'When it began to be undone. NULL: it did not.';
COMMENT ON COLUMN workflow_steps.compensation_ended_at IS
    'When that ended. NULL: it has not, or never began.';

UPDATE workflow_steps AS step SET placed_at = instance.started_at, begun_at = step.started_at
FROM workflow_instances AS instance
WHERE instance.stack = step.stack AND instance.instance_id = step.instance_id;


CREATE FUNCTION outputs_at(in_stack text, at timestamptz)
RETURNS TABLE (
    output_key text, journal_seq bigint, proposal_no bigint, episode_id uuid, actor_id text,
    expectation_id text, adapter text, status text, payload jsonb, payload_hash text,
    summary text, approvers text[], quorum bigint, barred text, approved_by text[],
    expires_at timestamptz, on_expiry text, remind_every_s double precision, resolution text,
    decided_by text, decided_reason text, decision_id text, decided_at timestamptz,
    attempts bigint, next_attempt_at timestamptz, delivered_ref text, error_class text,
    error_detail text, created_at timestamptz, updated_at timestamptz, delivered_at timestamptz,
    canceled_at timestamptz, asked_at timestamptz, edited_hash text
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        output.output_key, last.journal_seq, proposal.proposal_no, proposal.episode_id,
        output.actor_id, output.expectation_id, output.adapter, last.status,
        -- What was changed by who approved it later is not known as it was.
        CASE
            WHEN same.is_proposal AND (output.edited_hash IS NULL OR decision.at IS NOT NULL)
                THEN output.payload
        END,
        CASE WHEN same.is_request THEN output.payload_hash END,
        CASE WHEN same.is_proposal THEN output.summary END,
        CASE WHEN same.is_proposal THEN output.approvers ELSE '{}' END,
        CASE WHEN same.is_proposal THEN output.quorum ELSE 1 END,
        CASE WHEN same.is_proposal THEN output.barred END,
        coalesce(
            (
                SELECT array_agg(given.person ORDER BY given.journal_seq, given.event_no)
                FROM output_events AS given
                WHERE given.stack = output.stack AND given.output_key = output.output_key
                    AND given.kind = 'output_approval_given' AND given.at <= outputs_at.at
                    AND (given.journal_seq, given.event_no) > (asked.journal_seq, asked.event_no)
            ),
            '{}'
        ),
        CASE WHEN same.is_request THEN output.expires_at END,
        CASE WHEN same.is_proposal THEN output.on_expiry END,
        CASE WHEN same.is_proposal THEN output.remind_every_s END,
        CASE
            WHEN decision.kind = 'output_failed' OR decision.person IS NULL
                AND decision.kind IS NOT NULL THEN 'expired'
            WHEN decision.kind = 'output_approved' THEN 'approved'
            WHEN decision.kind = 'output_rejected' THEN 'denied'
        END,
        decision.person, coalesce(decision.reason, decision.error_detail),
        CASE WHEN decision.at = output.decided_at THEN output.decision_id END,
        decision.at, coalesce(tried.attempt, 0), last.next_attempt_at,
        delivery.delivered_ref, last.error_class, last.error_detail, proposal.at, last.at,
        delivery.at, cancellation.at, asked.at,
        CASE WHEN decision.at = output.decided_at THEN output.edited_hash END
    FROM outputs AS output
    CROSS JOIN LATERAL (
        SELECT happened.*
        FROM output_events AS happened
        WHERE happened.stack = output.stack AND happened.output_key = output.output_key
            AND happened.at <= outputs_at.at  -- guard: past-output-no-later-event
        ORDER BY happened.journal_seq DESC, happened.event_no DESC
        LIMIT 1
    ) AS last
    CROSS JOIN LATERAL (
        SELECT happened.*
        FROM output_events AS happened
        WHERE happened.stack = output.stack AND happened.output_key = output.output_key
            AND happened.at <= outputs_at.at AND happened.kind = 'output_proposed'
        ORDER BY happened.journal_seq DESC, happened.event_no DESC
        LIMIT 1
    ) AS proposal
    LEFT JOIN LATERAL (
        SELECT happened.*
        FROM output_events AS happened
        WHERE happened.stack = output.stack AND happened.output_key = output.output_key
            AND happened.at <= outputs_at.at AND happened.status = 'awaiting_approval'
            AND happened.kind IN ('output_proposed', 'output_retried')
            AND (happened.journal_seq, happened.event_no)
                >= (proposal.journal_seq, proposal.event_no)
        ORDER BY happened.journal_seq DESC, happened.event_no DESC
        LIMIT 1
    ) AS asked ON true
    LEFT JOIN LATERAL (
        SELECT happened.*
        FROM output_events AS happened
        WHERE happened.stack = output.stack AND happened.output_key = output.output_key
            AND happened.at <= outputs_at.at
            AND (
                happened.kind IN ('output_approved', 'output_rejected')
                OR happened.kind = 'output_failed' AND happened.attempt = 0
                    AND happened.error_class = 'approval_expired'
            )
            AND (happened.journal_seq, happened.event_no) > (asked.journal_seq, asked.event_no)
        ORDER BY happened.journal_seq DESC, happened.event_no DESC
        LIMIT 1
    ) AS decision ON true
    LEFT JOIN LATERAL (
        SELECT max(happened.attempt) AS attempt
        FROM output_events AS happened
        WHERE happened.stack = output.stack AND happened.output_key = output.output_key
            AND happened.at <= outputs_at.at
            AND (happened.journal_seq, happened.event_no)
                > (proposal.journal_seq, proposal.event_no)
    ) AS tried ON true
    LEFT JOIN LATERAL (
        SELECT happened.*
        FROM output_events AS happened
        WHERE happened.stack = output.stack AND happened.output_key = output.output_key
            AND happened.at <= outputs_at.at AND happened.kind = 'output_delivered'
            AND (happened.journal_seq, happened.event_no)
                > (proposal.journal_seq, proposal.event_no)
        ORDER BY happened.journal_seq DESC, happened.event_no DESC
        LIMIT 1
    ) AS delivery ON true
    LEFT JOIN LATERAL (
        SELECT happened.at
        FROM output_events AS happened
        WHERE happened.stack = output.stack AND happened.output_key = output.output_key
            AND happened.at <= outputs_at.at AND happened.kind = 'output_canceled'
            AND (happened.journal_seq, happened.event_no)
                > (proposal.journal_seq, proposal.event_no)
        ORDER BY happened.journal_seq DESC, happened.event_no DESC
        LIMIT 1
    ) AS cancellation ON true
    CROSS JOIN LATERAL (
        SELECT
            output.proposal_no = proposal.proposal_no AS is_proposal,
            coalesce(output.asked_at = asked.at, false) AS is_request
    ) AS same
    WHERE output.stack = outputs_at.in_stack;
END;
COMMENT ON FUNCTION outputs_at(text, timestamptz) IS
    'The outputs of a stack as they were at a time, by their history. NULL where nobody knows any more: what an earlier proposal said, if the output was proposed anew since, and what was proposed, if it was changed by who approved it later. As of now: actor, expectation and adapter. approved_by names all who had approved since people were last asked, of whatever plan.';


CREATE FUNCTION workflow_steps_at(in_stack text, at timestamptz)
RETURNS TABLE (
    instance_id uuid, step_id text, item bigint, journal_seq bigint, status text, attempts bigint,
    episode_id uuid, input jsonb, result jsonb, error_class text, error_detail text,
    retry_at timestamptz, plan_hash text, summary text, approvers text[], quorum bigint,
    barred text, approved_by text[], asked_at timestamptz, expires_at timestamptz,
    decided_by text, decided_reason text, compensation_status text, compensation_episode_id uuid,
    started_at timestamptz, finished_at timestamptz, reused_episode_id uuid, edited_hash text,
    decided_at timestamptz, paused_at timestamptz, resumed_at timestamptz
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        step.instance_id, step.step_id, step.item, step.journal_seq,
        CASE
            WHEN moment.is_request THEN 'awaiting_approval'
            WHEN moment.is_pause THEN 'paused'
            -- It was to be tried again, when its instance began to stop.
            WHEN moment.is_ended AND step.status = 'canceled'
                AND step.finished_at < instance.stopping_at
                AND instance.stopping_at > workflow_steps_at.at THEN 'retrying'
            WHEN moment.is_ended THEN step.status
            WHEN step.status = 'canceled' AND step.finished_at IS NULL
                AND instance.stopping_at <= workflow_steps_at.at THEN 'canceled'
            WHEN step.begun_at <= workflow_steps_at.at THEN 'running'
            ELSE 'pending'
        END,
        CASE WHEN moment.is_newest THEN step.attempts WHEN moment.is_begun THEN NULL ELSE 0 END,
        CASE WHEN moment.is_newest THEN step.episode_id END,
        step.input,
        CASE WHEN moment.is_ended THEN step.result END,
        CASE WHEN moment.is_ended THEN step.error_class END,
        CASE WHEN moment.is_ended THEN step.error_detail END,
        CASE WHEN moment.is_ended THEN step.retry_at END,
        CASE WHEN moment.is_asked THEN step.plan_hash END,
        CASE WHEN moment.is_asked THEN step.summary END,
        CASE WHEN moment.is_asked THEN step.approvers ELSE '{}' END,
        CASE WHEN moment.is_asked THEN step.quorum ELSE 1 END,
        CASE WHEN moment.is_asked THEN step.barred END,
        CASE WHEN moment.is_asked THEN step.approved_by ELSE '{}' END,
        CASE WHEN moment.is_asked THEN step.asked_at END,
        CASE WHEN moment.is_asked THEN step.expires_at END,
        CASE WHEN moment.is_decided THEN step.decided_by END,
        CASE WHEN moment.is_decided THEN step.decided_reason END,
        CASE
            WHEN step.compensation_ended_at <= workflow_steps_at.at THEN step.compensation_status
            WHEN step.compensation_begun_at <= workflow_steps_at.at THEN 'running'
        END,
        CASE
            WHEN step.compensation_begun_at <= workflow_steps_at.at
                THEN step.compensation_episode_id
        END,
        CASE WHEN moment.is_newest THEN step.started_at WHEN moment.is_begun THEN step.begun_at END,
        CASE WHEN moment.is_ended THEN step.finished_at END,
        CASE WHEN moment.is_ended THEN step.reused_episode_id END,
        CASE WHEN moment.is_decided THEN step.edited_hash END,
        CASE WHEN moment.is_decided THEN step.decided_at END,
        CASE WHEN step.paused_at <= workflow_steps_at.at THEN step.paused_at END,
        CASE WHEN step.resumed_at <= workflow_steps_at.at THEN step.resumed_at END
    FROM workflow_steps AS step
    JOIN workflow_instances AS instance
        ON instance.stack = step.stack AND instance.instance_id = step.instance_id
    CROSS JOIN LATERAL (
        SELECT
            coalesce(step.asked_at <= workflow_steps_at.at, false) AND (
                step.decided_at IS NULL OR step.decided_at > workflow_steps_at.at
                OR step.decided_at < step.asked_at
            ) AS is_request,
            coalesce(step.paused_at <= workflow_steps_at.at, false) AND (
                step.resumed_at IS NULL OR step.resumed_at > workflow_steps_at.at
                OR step.resumed_at < step.paused_at
            ) AS is_pause,
            coalesce(step.asked_at <= workflow_steps_at.at, false) AS is_asked,
            coalesce(step.decided_at <= workflow_steps_at.at, false) AS is_decided,
            coalesce(step.begun_at <= workflow_steps_at.at, false) AS is_begun,
            coalesce(step.started_at <= workflow_steps_at.at, false) AS is_newest,
            coalesce(step.finished_at <= workflow_steps_at.at, false) AS is_ended
    ) AS moment
    WHERE step.stack = workflow_steps_at.in_stack
        AND step.placed_at <= workflow_steps_at.at;  -- guard: unplaced-item-not-in-past
END;
COMMENT ON FUNCTION workflow_steps_at(text, timestamptz) IS
    'The items of steps of a stack''s instances as they were at a time. NULL where nobody knows any more: of an item that was tried again since, the attempt, its episode and how it had ended; it counts as running between its first and its newest attempt. As of now: journal_seq, input, and who has approved.';


CREATE FUNCTION workflows_at(in_stack text, at timestamptz)
RETURNS TABLE (
    instance_id uuid, workflow_id text, status text, mode text, subject_value text, items bigint,
    done bigint, running bigint, waiting bigint, parent_instance_id uuid, error_class text,
    error_detail text, failed_step text, started_at timestamptz, updated_at timestamptz,
    finished_at timestamptz, journal_seq bigint, budget_usd numeric, spent_usd numeric
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        instance.instance_id, instance.workflow_id,
        CASE
            WHEN instance.finished_at <= workflows_at.at THEN instance.status
            WHEN instance.compensating_at <= workflows_at.at THEN 'compensating'
            WHEN instance.stopping_at <= workflows_at.at THEN 'stopping'
            WHEN step.waiting > 0 AND step.moving = 0 THEN 'blocked'
            ELSE 'running'
        END,
        instance.mode, instance.subject_value, step.items, step.done, step.moving, step.waiting,
        instance.parent_instance_id,
        CASE WHEN instance.stopping_at <= workflows_at.at THEN instance.error_class END,
        CASE WHEN instance.stopping_at <= workflows_at.at THEN instance.error_detail END,
        CASE WHEN instance.stopping_at <= workflows_at.at THEN instance.failed_step END,
        instance.started_at,
        CASE WHEN instance.updated_at <= workflows_at.at THEN instance.updated_at END,
        CASE WHEN instance.finished_at <= workflows_at.at THEN instance.finished_at END,
        instance.journal_seq, instance.budget_usd,
        CASE WHEN instance.updated_at <= workflows_at.at THEN instance.spent_usd END
    FROM workflow_instances AS instance
    CROSS JOIN LATERAL (
        SELECT
            count(*) AS items,
            count(*) FILTER (WHERE item.status IN ('done', 'skipped')) AS done,
            count(*) FILTER (WHERE item.status IN ('running', 'retrying')) AS moving,
            count(*) FILTER (WHERE item.status IN ('awaiting_approval', 'paused')) AS waiting
        FROM workflow_steps_at(workflows_at.in_stack, workflows_at.at) AS item
        WHERE item.instance_id = instance.instance_id
    ) AS step
    WHERE instance.stack = workflows_at.in_stack
        AND instance.started_at <= workflows_at.at;  -- guard: unbegun-instance-not-in-past
END;
COMMENT ON FUNCTION workflows_at(text, timestamptz) IS
    'Instances of workflows of a stack as they were at a time, and their progress, as the view workflows has it. NULL where nobody knows any more: what one that has gone on since had spent, and when it had last changed. As of now: journal_seq.';
