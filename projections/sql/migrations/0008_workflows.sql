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
