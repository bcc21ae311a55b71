-- Workflows: their instances, and the items of their steps.

CREATE TABLE workflow_instances (
    stack text NOT NULL,
    instance_id uuid NOT NULL,
    journal_seq bigint NOT NULL,
    workflow_id text NOT NULL,
    status text NOT NULL CHECK (status IN (
        'running', 'stopping', 'compensating', 'done', 'failed', 'canceled'
    )),
    mode text NOT NULL,
    trigger_type text NOT NULL,
    trigger_ref jsonb NOT NULL,
    subject_value text,
    dedupe_key text NOT NULL,
    steps jsonb NOT NULL,
    parent_instance_id uuid,
    parent_step_id text,
    depth bigint NOT NULL,
    error_class text,
    error_detail text,
    failed_step text,
    canceled_by text,
    cancel_reason text,
    not_undone text[] NOT NULL DEFAULT '{}',
    started_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    finished_at timestamptz,
    PRIMARY KEY (stack, instance_id)
) WITH (fillfactor = 80);
COMMENT ON TABLE workflow_instances IS 'Runs of workflows, one row each.';
COMMENT ON COLUMN workflow_instances.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN workflow_instances.instance_id IS 'The same cause gives the same id.';
COMMENT ON COLUMN workflow_instances.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN workflow_instances.workflow_id IS 'The workflow''s name.';
COMMENT ON COLUMN workflow_instances.status IS
    'running, stopping (what runs is being canceled), compensating (what was done is being undone), or how it ended: done, failed, canceled. The view workflows also says blocked.';
COMMENT ON COLUMN workflow_instances.mode IS 'live, or dry_run: nothing outside was changed.';
COMMENT ON COLUMN workflow_instances.trigger_type IS
    'What began it: event, schedule, manual or workflow (it is a step of another one).';
COMMENT ON COLUMN workflow_instances.trigger_ref IS
    'The trigger in full; payload (of a workflow: input) holds what it said.';
COMMENT ON COLUMN workflow_instances.subject_value IS 'What it is about. NULL: nothing says so.';
COMMENT ON COLUMN workflow_instances.dedupe_key IS 'What makes its cause the same as another one.';
COMMENT ON COLUMN workflow_instances.steps IS
    'Its steps in the order of their declaration: step_id, depends_on, and actor_id and expectation_id or workflow_id.';
COMMENT ON COLUMN workflow_instances.parent_instance_id IS
    'The instance that it is a step of. NULL: of none.';
COMMENT ON COLUMN workflow_instances.parent_step_id IS 'Which step of that. NULL: none.';
COMMENT ON COLUMN workflow_instances.depth IS 'How many instances it is a part of.';
COMMENT ON COLUMN workflow_instances.error_class IS 'Why it was aborted: a stable class.';
COMMENT ON COLUMN workflow_instances.error_detail IS 'Why it was aborted, in words.';
COMMENT ON COLUMN workflow_instances.failed_step IS
    'The step that it was aborted for. NULL: it was not, or took too long.';
COMMENT ON COLUMN workflow_instances.canceled_by IS 'Who wanted it canceled; NULL: nobody.';
COMMENT ON COLUMN workflow_instances.cancel_reason IS 'Why, in words.';
COMMENT ON COLUMN workflow_instances.not_undone IS
    'Steps that were done and could not be undone.';
COMMENT ON COLUMN workflow_instances.started_at IS 'When it began.';
COMMENT ON COLUMN workflow_instances.updated_at IS 'When anything last happened to it.';
COMMENT ON COLUMN workflow_instances.finished_at IS 'When it ended.';

CREATE INDEX workflow_instances_by_time
    ON workflow_instances (stack, started_at DESC, instance_id DESC);
CREATE INDEX workflow_instances_open ON workflow_instances (stack, started_at DESC)
    WHERE finished_at IS NULL;
CREATE INDEX workflow_instances_by_parent ON workflow_instances (stack, parent_instance_id)
    WHERE parent_instance_id IS NOT NULL;


CREATE TABLE workflow_steps (
    stack text NOT NULL,
    instance_id uuid NOT NULL,
    step_id text NOT NULL,
    item bigint NOT NULL,
    journal_seq bigint NOT NULL,
    status text NOT NULL CHECK (status IN (
        'pending', 'awaiting_approval', 'running', 'failed', 'retrying', 'paused', 'done',
        'skipped', 'canceled'
    )),
    attempts bigint NOT NULL DEFAULT 0,
    episode_id uuid,
    input jsonb,
    result jsonb,
    error_class text,
    error_detail text,
    retry_at timestamptz,
    plan_hash text,
    summary text,
    approvers text[] NOT NULL DEFAULT '{}',
    asked_at timestamptz,
    expires_at timestamptz,
    decided_by text,
    decided_reason text,
    compensation_status text CHECK (
        compensation_status IN ('running', 'done', 'failed', 'canceled')
    ),
    compensation_episode_id uuid,
    started_at timestamptz,
    finished_at timestamptz,
    PRIMARY KEY (stack, instance_id, step_id, item)
) WITH (fillfactor = 80);
COMMENT ON TABLE workflow_steps IS
    'Steps of instances of workflows: a row for each item that a step runs for, and one of a step that does not fan out.';
COMMENT ON COLUMN workflow_steps.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN workflow_steps.instance_id IS 'The instance that it is a step of.';
COMMENT ON COLUMN workflow_steps.step_id IS 'The step''s name.';
COMMENT ON COLUMN workflow_steps.item IS 'Which item of it, from 0.';
COMMENT ON COLUMN workflow_steps.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN workflow_steps.status IS
    'pending, awaiting_approval, running, failed (for good), retrying (later), paused (a person has to say), done, skipped or canceled.';
COMMENT ON COLUMN workflow_steps.attempts IS 'Attempts so far, the present one included.';
COMMENT ON COLUMN workflow_steps.episode_id IS
    'The episode of the newest attempt, or its instance if the step is another workflow. NULL: there was none.';
COMMENT ON COLUMN workflow_steps.input IS 'What it runs with. NULL: it is not known yet.';
COMMENT ON COLUMN workflow_steps.result IS 'What it brought, for the steps that depend on it.';
COMMENT ON COLUMN workflow_steps.error_class IS
    'Why the newest attempt failed: a stable class. NULL: it did not, or goes on.';
COMMENT ON COLUMN workflow_steps.error_detail IS 'Why the newest attempt failed, in words.';
COMMENT ON COLUMN workflow_steps.retry_at IS
    'Not before then it is tried again. NULL: no attempt is put off.';
COMMENT ON COLUMN workflow_steps.plan_hash IS
    'SHA-256 of what people were asked to approve, in hex: a decision names it. NULL: nothing.';
COMMENT ON COLUMN workflow_steps.summary IS 'What they were asked, in one sentence.';
COMMENT ON COLUMN workflow_steps.approvers IS 'Who may approve it; none: anybody.';
COMMENT ON COLUMN workflow_steps.asked_at IS 'When they were asked.';
COMMENT ON COLUMN workflow_steps.expires_at IS
    'Until when it can be approved. NULL: for as long as it takes.';
COMMENT ON COLUMN workflow_steps.decided_by IS 'Who decided; NULL: nobody has.';
COMMENT ON COLUMN workflow_steps.decided_reason IS 'Why, in words.';
COMMENT ON COLUMN workflow_steps.compensation_status IS
    'How the newest attempt to undo it stands: running, done, failed or canceled. NULL: there was none.';
COMMENT ON COLUMN workflow_steps.compensation_episode_id IS 'The episode of that attempt.';
COMMENT ON COLUMN workflow_steps.started_at IS 'When the newest attempt began.';
COMMENT ON COLUMN workflow_steps.finished_at IS 'When that ended.';

CREATE INDEX workflow_steps_by_episode ON workflow_steps (stack, episode_id)
    WHERE episode_id IS NOT NULL;
-- The few that wait for somebody, among however many there are.
CREATE INDEX workflow_steps_asking ON workflow_steps (stack, instance_id)
    WHERE status IN ('awaiting_approval', 'paused');


CREATE VIEW workflows AS
SELECT
    instance.stack, instance.instance_id, instance.workflow_id,
    CASE
        WHEN instance.status = 'running' AND step.waiting > 0 AND step.moving = 0 THEN 'blocked'
        ELSE instance.status
    END AS status,
    instance.mode, instance.subject_value, step.items, step.done, step.moving AS running,
    step.waiting, instance.parent_instance_id, instance.error_class, instance.error_detail,
    instance.failed_step, instance.started_at, instance.updated_at, instance.finished_at,
    instance.journal_seq
FROM workflow_instances AS instance
CROSS JOIN LATERAL (
    SELECT
        count(*) AS items,
        count(*) FILTER (WHERE status IN ('done', 'skipped')) AS done,
        count(*) FILTER (WHERE status IN ('running', 'retrying')) AS moving,
        count(*) FILTER (WHERE status IN ('awaiting_approval', 'paused')) AS waiting
    FROM workflow_steps
    WHERE stack = instance.stack AND instance_id = instance.instance_id
) AS step;
COMMENT ON VIEW workflows IS 'Runs of workflows, and how far each is.';
COMMENT ON COLUMN workflows.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN workflows.instance_id IS 'The same cause gives the same id.';
COMMENT ON COLUMN workflows.workflow_id IS 'The workflow''s name.';
COMMENT ON COLUMN workflows.status IS
    'running, blocked (nothing runs before a person has decided something), stopping, compensating, or how it ended: done, failed, canceled.';
COMMENT ON COLUMN workflows.mode IS 'live, or dry_run: nothing outside was changed.';
COMMENT ON COLUMN workflows.subject_value IS 'What it is about. NULL: nothing says so.';
COMMENT ON COLUMN workflows.items IS 'Items of its steps, as far as they are known.';
COMMENT ON COLUMN workflows.done IS 'How many of them are done, or were skipped.';
COMMENT ON COLUMN workflows.running IS 'How many run, or will be tried again.';
COMMENT ON COLUMN workflows.waiting IS 'How many wait for people.';
COMMENT ON COLUMN workflows.parent_instance_id IS 'The instance that it is a step of. NULL: of none.';
COMMENT ON COLUMN workflows.error_class IS 'Why it was aborted: a stable class.';
COMMENT ON COLUMN workflows.error_detail IS 'Why it was aborted, in words.';
COMMENT ON COLUMN workflows.failed_step IS
    'The step that it was aborted for. NULL: it was not, or took too long.';
COMMENT ON COLUMN workflows.started_at IS 'When it began.';
COMMENT ON COLUMN workflows.updated_at IS 'When anything last happened to it.';
COMMENT ON COLUMN workflows.finished_at IS 'When it ended.';
COMMENT ON COLUMN workflows.journal_seq IS
    'Sequence of the commit that last changed it, in the journal or in its partition of it.';


-- What waits for a person, with what workflows ask.

CREATE OR REPLACE VIEW inbox AS
SELECT
    block.stack, block.reason AS kind, block.episode_id::text AS id, episode.actor_id,
    episode.expectation_id,
    CASE block.reason
        WHEN 'wait' THEN 'waits for ' || block.ref
        ELSE coalesce(block.summary, left(block.plan::text, 200))
    END AS summary,
    block.blocked_at AS since, block.expires_at,
    CASE block.reason
        WHEN 'wait' THEN 'vigil episodes resolve ' || shell_word(block.ref)
        ELSE format('vigil episodes approve %s', block.episode_id)
    END AS what_to_do,
    block.journal_seq
FROM episodes AS episode
JOIN episode_blocks AS block USING (stack, episode_id)
WHERE episode.blocked_by IN ('approval', 'wait') AND block.resolution IS NULL
UNION ALL
SELECT
    stack, 'output', output_key, actor_id, expectation_id,
    coalesce(summary, left(payload::text, 200)), created_at, expires_at,
    format('vigil outputs approve %s', shell_word(output_key)), journal_seq
FROM outputs
WHERE status = 'awaiting_approval'
UNION ALL
SELECT
    letter.stack, 'dead_letter', letter.letter_key, letter.actor_id, episode.expectation_id,
    concat_ws(': ', letter.reason, nullif(
        CASE
            WHEN letter.output_key IS NULL THEN letter.detail
            -- The cause is on the last line of a traceback.
            ELSE left(regexp_replace(rtrim(letter.detail, E' \n'), '^.*\n', ''), 120)
        END,
        ''
    )),
    letter.lettered_at, NULL,
    CASE
        WHEN letter.output_key IS NULL THEN 'vigil dead show ' || shell_word(letter.letter_key)
        ELSE 'vigil outputs retry ' || shell_word(letter.output_key)
    END,
    letter.journal_seq
FROM dead_letters AS letter
LEFT JOIN episodes AS episode USING (stack, episode_id)
WHERE letter.status = 'waiting'
UNION ALL
SELECT
    step.stack, 'workflow_step', step.instance_id::text, 'workflow-' || instance.workflow_id,
    step.step_id,
    CASE step.status
        WHEN 'paused' THEN concat_ws(
            ': ', format('step %s has failed', step.step_id), step.error_class, step.error_detail
        )
        ELSE coalesce(step.summary, format('step %s is to be approved', step.step_id))
    END,
    CASE step.status WHEN 'paused' THEN step.finished_at ELSE step.asked_at END,
    CASE step.status WHEN 'paused' THEN NULL ELSE step.expires_at END,
    CASE step.status
        WHEN 'paused' THEN format(
            'vigil workflows resume %s %s --retry', step.instance_id, step.step_id
        )
        ELSE format('vigil workflows approve %s %s', step.instance_id, step.step_id)
    END,
    step.journal_seq
FROM workflow_steps AS step
JOIN workflow_instances AS instance USING (stack, instance_id)
WHERE step.status IN ('awaiting_approval', 'paused')
ORDER BY since;
COMMENT ON COLUMN inbox.kind IS
    'approval (an episode asks), output (one is to be approved), wait (for word from outside), workflow_step (one is to be approved, or has failed and is paused) or dead_letter (something could not be done).';
COMMENT ON COLUMN inbox.id IS
    'The id of the episode that asks or waits, or of the instance, or the key of the output or of the dead letter.';
COMMENT ON COLUMN inbox.expectation_id IS
    'Which of the actor''s expectations was triggered, where there is an episode; of a workflow, the step.';
COMMENT ON COLUMN inbox.what_to_do IS
    'The command to type. Instead of `approve` say `deny` of an episode or a step, `reject` of an output; instead of `--retry`, `--skip`.';
