-- The tables and views: what the log says, as rows.
--
-- Runs with search_path set to the one schema it fills, so names are never qualified.
-- No foreign keys: rows come from independent aggregates, in the order of their streams.
-- Columns that people's data fills may be of any size, so none of them is in a B-tree.
-- The journal and the state may have partitions, each with a sequence and a checkpoint of its own.


-- Episodes: what woke them, what they did, what they waited for, and how they ended. Not their
-- overrides: they stand for results, which may be redacted where the rows show them.

CREATE TABLE episodes (
    stack text NOT NULL,
    episode_id uuid NOT NULL,
    journal_seq bigint NOT NULL,
    actor_id text NOT NULL,
    expectation_id text NOT NULL,
    spec_rev text,
    generation bigint NOT NULL,
    trigger_type text NOT NULL,
    trigger_ref jsonb NOT NULL,
    subject_kind text,
    subject_id text,
    dedupe_key text NOT NULL,
    budget jsonb NOT NULL,
    queued_at timestamptz NOT NULL,
    status text NOT NULL CHECK (status IN (
        'queued', 'running', 'blocked', 'done', 'failed', 'partially_failed', 'canceled'
    )),
    node text,
    attempts bigint NOT NULL DEFAULT 0,
    takeovers bigint NOT NULL DEFAULT 0,
    started_at timestamptz,
    finished_at timestamptz,
    turns_used bigint NOT NULL DEFAULT 0,
    tokens_used bigint NOT NULL DEFAULT 0,
    classification jsonb,
    confidence double precision,
    summary text,
    error_class text,
    error_detail text,
    mode text NOT NULL DEFAULT 'live' CHECK (mode IN ('live', 'dry_run')),
    priority bigint NOT NULL DEFAULT 0,
    opened_by text,
    is_request boolean NOT NULL DEFAULT false,
    start_by timestamptz,
    blocked_by text CHECK (
        blocked_by IN ('approval', 'wait', 'outputs', 'nondeterministic_replay')
    ),
    outputs jsonb,
    definition_revision bigint,
    metadata jsonb,
    model text,
    wall_used_ms bigint NOT NULL DEFAULT 0,
    first_node text,
    workflow_id text,
    workflow_instance_id uuid,
    workflow_step_id text,
    workflow_step_no bigint,
    workflow_item bigint,
    parent_id uuid,
    parent_call text,
    forked_from uuid,
    forked_at_step bigint,
    forked_by text,
    forked_reason text,
    log_strategy text NOT NULL DEFAULT 'full_debug',
    service_level jsonb,
    level_outcome text,
    would_raise jsonb,
    would_send jsonb,
    cost_usd numeric NOT NULL DEFAULT 0,
    agent text,
    left_at timestamptz,
    deferred_at timestamptz,
    PRIMARY KEY (stack, episode_id)
) WITH (fillfactor = 80);
COMMENT ON TABLE episodes IS
    'Runs of actors: what triggered them, their progress, their conclusion. One row each.';
COMMENT ON COLUMN episodes.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episodes.episode_id IS
    'Computed from its cause: the same cause is the same episode.';
COMMENT ON COLUMN episodes.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN episodes.actor_id IS 'The actor that runs.';
COMMENT ON COLUMN episodes.expectation_id IS 'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN episodes.spec_rev IS
    'The spec_rev of its actor when it was opened. NULL: the actor declares none.';
COMMENT ON COLUMN episodes.generation IS
    '0 for the first episode of a cause, and 1 more each time a person requeues it.';
COMMENT ON COLUMN episodes.trigger_type IS
    'What triggered it: event, schedule, manual, workflow or episode.';
COMMENT ON COLUMN episodes.trigger_ref IS
    'The trigger in full; payload (of a workflow: input) is the payload of the event.';
COMMENT ON COLUMN episodes.subject_kind IS
    'The expectation''s subject key: what kind of thing the episode is about.';
COMMENT ON COLUMN episodes.subject_id IS
    'The value at the subject key in the trigger''s payload: which thing the episode is about.';
COMMENT ON COLUMN episodes.dedupe_key IS 'Triggers with the same key open one episode.';
COMMENT ON COLUMN episodes.budget IS
    'Its limits: turns, tokens, wall_s (seconds), usd (US dollars, as text). 0 or less: no limit.';
COMMENT ON COLUMN episodes.queued_at IS 'When it was opened.';
COMMENT ON COLUMN episodes.status IS
    'queued, running, blocked (it waits, and no node runs it), or how it ended: done, failed, partially_failed, canceled.';
COMMENT ON COLUMN episodes.node IS 'The node that runs it, or ran it last.';
COMMENT ON COLUMN episodes.attempts IS
    'Starts so far: the first one, each takeover, and each one after it has waited or its node was stopped.';
COMMENT ON COLUMN episodes.takeovers IS
    'How often it was started while it ran: its node had crashed, or could not renew its lease.';
COMMENT ON COLUMN episodes.started_at IS 'When it first started.';
COMMENT ON COLUMN episodes.finished_at IS 'When it ended.';
COMMENT ON COLUMN episodes.turns_used IS
    'Turns so far, as its budget counts them: one for each step, but none for the pauses and later attempts of a call that is retried. The conclusion counts as one, too.';
COMMENT ON COLUMN episodes.tokens_used IS 'Model tokens so far.';
COMMENT ON COLUMN episodes.cost_usd IS
    'What its own requests to models have cost so far, in US dollars, as far as that is known: the sum of its steps. Those of its children are in their rows, and the past of a fork is in that of the other episode.';
COMMENT ON COLUMN episodes.agent IS
    'The agent that asked a model last: its name, and the digest of its prompt, tools, settings and model. NULL: none did.';
COMMENT ON COLUMN episodes.left_at IS
    'When a node that was stopped last gave it back. NULL: none has.';
COMMENT ON COLUMN episodes.deferred_at IS
    'When it last began to wait for its own outputs. NULL: it never has.';
COMMENT ON COLUMN episodes.classification IS 'The conclusion of the strategy.';
COMMENT ON COLUMN episodes.confidence IS 'How sure the strategy is, 0 to 1.';
COMMENT ON COLUMN episodes.summary IS 'The conclusion of the strategy in words.';
COMMENT ON COLUMN episodes.error_class IS 'Why it failed: a stable class, such as budget_exceeded.';
COMMENT ON COLUMN episodes.error_detail IS 'Why it failed, in words.';
COMMENT ON COLUMN episodes.mode IS 'live, or dry_run: a rehearsal without effects outside.';
COMMENT ON COLUMN episodes.priority IS
    'Where episodes wait for their turn, a higher priority goes first: each is worth 100 places.';
COMMENT ON COLUMN episodes.opened_by IS 'The node that opened it. NULL: a person fired it by hand.';
COMMENT ON COLUMN episodes.is_request IS
    'Whether that node opened it as a request, for other nodes to run.';
COMMENT ON COLUMN episodes.start_by IS
    'If no node has started it by then, it is canceled as expired. NULL: no deadline.';
COMMENT ON COLUMN episodes.blocked_by IS
    'What it waits for while it is blocked: approval (people), wait (an event from another system), outputs (a later delivery or approval of its own outputs) or nondeterministic_replay (other code: that of its node takes another way than the recorded one).';
COMMENT ON COLUMN episodes.outputs IS
    'The results of its outputs: for each its output_key, its outcome (delivered, failed, rejected, canceled, duplicate of another episode''s, dry_run) and an error_class. NULL: there is no result yet.';
COMMENT ON COLUMN episodes.definition_revision IS
    'Revision of its actor''s definition when it was opened. NULL: the actor is declared in code.';
COMMENT ON COLUMN episodes.metadata IS
    'What the fire by hand and the strategy said of it: an object; the strategy''s values win. NULL: nothing.';
COMMENT ON COLUMN episodes.model IS 'The model that answered first. NULL: none did.';
COMMENT ON COLUMN episodes.wall_used_ms IS
    'How long it ran, over all attempts, in milliseconds; of branches at the same time, the time counts once. Waiting for people, events or the log does not count.';
COMMENT ON COLUMN episodes.first_node IS 'The node that first started it.';
COMMENT ON COLUMN episodes.workflow_id IS 'The workflow that it is a step of. NULL: none.';
COMMENT ON COLUMN episodes.workflow_instance_id IS
    'The instance of the workflow that it is a step of. NULL: none.';
COMMENT ON COLUMN episodes.workflow_step_id IS 'The name of that step. NULL: it is no step.';
COMMENT ON COLUMN episodes.workflow_step_no IS
    'How many steps lie before that step, on the longest way to it. NULL: it is no step.';
COMMENT ON COLUMN episodes.workflow_item IS 'Which item of that step, from 0. NULL: it is no step.';
COMMENT ON COLUMN episodes.parent_id IS
    'The episode that started it and waits for its end. NULL: none does.';
COMMENT ON COLUMN episodes.parent_call IS
    'The path of the call in that episode''s function, such as 4.2.1. NULL: it has no parent.';
COMMENT ON COLUMN episodes.forked_from IS
    'The episode whose past it began with. NULL: it is no fork.';
COMMENT ON COLUMN episodes.forked_at_step IS 'The last step that both have. NULL: it is no fork.';
COMMENT ON COLUMN episodes.forked_by IS 'Who forked it. NULL: it is no fork.';
COMMENT ON COLUMN episodes.forked_reason IS 'Why, in words.';
COMMENT ON COLUMN episodes.log_strategy IS
    'What people may see of its steps: none, summary_only, timeline or full_debug.';
COMMENT ON COLUMN episodes.service_level IS
    'What its expectation promised when it was opened: start_s, end_s, success, window. NULL: nothing.';
COMMENT ON COLUMN episodes.level_outcome IS
    'Whether that was kept: met, or what was broken first: late_start, failed, late_end. NULL: it does not count, or has not ended.';
COMMENT ON COLUMN episodes.would_raise IS
    'The findings that it would have raised, updated or cleared, if it is a dry run that keeps none. NULL: none.';
COMMENT ON COLUMN episodes.would_send IS
    'The outputs that it would have sent with its conclusion, if it is a dry run. NULL: none.';

-- For lists: `sql/list_episodes.sql`. Without journal_seq, or no update would be in place.
CREATE INDEX episodes_by_start ON episodes (stack, started_at DESC, queued_at DESC);
CREATE INDEX episodes_by_status ON episodes (stack, status, started_at DESC, queued_at DESC);
-- For lists of the past: `episodes_at`.
CREATE INDEX episodes_by_opening ON episodes (stack, queued_at DESC, episode_id DESC);
-- Those that had not ended at a time are few, wherever that time lies. One entry each, when it ends.
CREATE INDEX episodes_by_life ON episodes
    USING gist (tstzrange(queued_at, greatest(queued_at, finished_at)))
    WHERE finished_at IS NOT NULL;
CREATE INDEX episodes_by_expectation ON episodes
    (stack, actor_id, expectation_id, started_at DESC);
CREATE INDEX episodes_by_subject ON episodes USING hash (subject_id);
CREATE INDEX episodes_requested ON episodes (stack, queued_at DESC) WHERE is_request;
-- The few that wait for somebody, among however many there are.
CREATE INDEX episodes_asking ON episodes (stack, episode_id)
    WHERE blocked_by IN ('approval', 'wait', 'nondeterministic_replay');
CREATE INDEX episodes_by_parent ON episodes (stack, parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX episodes_of_instances ON episodes (stack, workflow_instance_id)
    WHERE workflow_instance_id IS NOT NULL;
-- For what leaves: `old_episodes`.
CREATE INDEX episodes_ended ON episodes (stack, actor_id, status, finished_at, episode_id)
    WHERE finished_at IS NOT NULL;
CREATE INDEX episodes_forked ON episodes (stack, forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX episodes_by_level ON episodes
    (stack, actor_id, expectation_id, finished_at DESC, episode_id)
    WHERE level_outcome IS NOT NULL;


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


CREATE TABLE episode_steps (
    stack text NOT NULL,
    episode_id uuid NOT NULL,
    step_no bigint NOT NULL,
    journal_seq bigint NOT NULL,
    kind text NOT NULL,
    state text NOT NULL CHECK (state IN ('announced', 'recorded')),
    tool_name text,
    created_at timestamptz NOT NULL,
    announced_at timestamptz,
    side_effect_key text,
    args_redacted jsonb,
    result jsonb,
    error_class text,
    error_detail text,
    cost_tokens bigint,
    cost_ms bigint,
    model text,
    result_size_bytes bigint,
    result_digest text,
    is_override boolean NOT NULL DEFAULT false,
    input_tokens bigint,
    output_tokens bigint,
    cached_tokens bigint,
    reasoning_tokens bigint,
    cost_usd numeric,
    agent text,
    PRIMARY KEY (stack, episode_id, step_no)
);
-- For costs: `model_requests`.
CREATE INDEX episode_steps_of_models ON episode_steps (stack, created_at)
    WHERE kind IN ('model_request', 'synthesis') OR cost_usd IS NOT NULL;
COMMENT ON TABLE episode_steps IS 'The steps of episodes.';
COMMENT ON COLUMN episode_steps.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episode_steps.episode_id IS 'The episode that took the step.';
COMMENT ON COLUMN episode_steps.step_no IS 'From 1, without gaps.';
COMMENT ON COLUMN episode_steps.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN episode_steps.kind IS
    'tool_call, model_request, synthesis, observation, checkpoint, output, approval or wait.';
COMMENT ON COLUMN episode_steps.state IS
    'announced: a side effect was about to be made, and its outcome is not recorded. recorded: done.';
COMMENT ON COLUMN episode_steps.tool_name IS
    'capability.action of a tool call; output.<adapter> of an output.';
COMMENT ON COLUMN episode_steps.created_at IS
    'When it was recorded; until then, when it was announced.';
COMMENT ON COLUMN episode_steps.announced_at IS 'When its side effect was announced.';
-- With a hash of redacted arguments, anybody can confirm a guess of them.
COMMENT ON COLUMN episode_steps.side_effect_key IS
    'The idempotency key that was passed to the tool, without the hash of the arguments at its end.';
COMMENT ON COLUMN episode_steps.args_redacted IS
    'Its arguments as far as people may see them. NULL: there are none, or they may not.';
COMMENT ON COLUMN episode_steps.result IS
    'Its result as far as people may see it. NULL: there is none, or they may not.';
COMMENT ON COLUMN episode_steps.error_class IS 'Why it failed: a stable class.';
COMMENT ON COLUMN episode_steps.error_detail IS 'Why it failed, in words.';
COMMENT ON COLUMN episode_steps.cost_tokens IS
    'Model tokens it used, input and output together; as the budget counts them.';
COMMENT ON COLUMN episode_steps.input_tokens IS
    'Those of the input. NULL: none, or not reported; then cost_tokens is an estimate, or of a child.';
COMMENT ON COLUMN episode_steps.output_tokens IS
    'Those of the output. NULL: none, or not reported; then cost_tokens is an estimate, or of a child.';
COMMENT ON COLUMN episode_steps.cached_tokens IS
    'Those of the input that the provider had from earlier requests. NULL: none, or not reported.';
COMMENT ON COLUMN episode_steps.reasoning_tokens IS
    'Those of the output that the model has thought with. NULL: none, or not reported.';
COMMENT ON COLUMN episode_steps.cost_usd IS
    'What the request has cost, in US dollars, by the price of that moment. NULL: nobody knows, or it is no request to a model.';
COMMENT ON COLUMN episode_steps.agent IS
    'The agent that asked: its name, and the digest of its prompt, tools, settings and model. NULL: none did.';
COMMENT ON COLUMN episode_steps.cost_ms IS 'Its duration, in milliseconds.';
COMMENT ON COLUMN episode_steps.model IS 'The model that answered.';
COMMENT ON COLUMN episode_steps.result_size_bytes IS
    'Size of a large result, which the object store has, as JSON. NULL: the result is not large.';
COMMENT ON COLUMN episode_steps.result_digest IS
    'SHA-256 of a large result, in hex: its name in the object store. NULL: the result is not large, or people may not see all of it.';
COMMENT ON COLUMN episode_steps.is_override IS
    'Whether an override of a dry run stands for its result, or its failure.';


CREATE TABLE episode_checkpoints (
    stack text NOT NULL,
    episode_id uuid NOT NULL,
    checkpoint_no bigint NOT NULL,
    journal_seq bigint NOT NULL,
    step_no bigint NOT NULL,
    phase text NOT NULL,
    schema_version bigint NOT NULL,
    state_size_bytes bigint NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (stack, episode_id, checkpoint_no)
);
COMMENT ON TABLE episode_checkpoints IS
    'Checkpoints of strategies. The states themselves are only on the journal, because they may contain values that are redacted here.';
COMMENT ON COLUMN episode_checkpoints.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episode_checkpoints.episode_id IS 'The episode whose state it is.';
COMMENT ON COLUMN episode_checkpoints.checkpoint_no IS 'Number of the checkpoint in the episode.';
COMMENT ON COLUMN episode_checkpoints.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN episode_checkpoints.step_no IS
    'The step that saved it; a resumed episode continues after it.';
COMMENT ON COLUMN episode_checkpoints.phase IS 'The strategy''s name for it.';
COMMENT ON COLUMN episode_checkpoints.schema_version IS 'Version of the state''s shape.';
COMMENT ON COLUMN episode_checkpoints.state_size_bytes IS
    'How large the state is, in bytes of JSON.';
COMMENT ON COLUMN episode_checkpoints.created_at IS 'When it was saved.';


CREATE TABLE episode_blocks (
    stack text NOT NULL,
    episode_id uuid NOT NULL,
    step_no bigint NOT NULL,
    journal_seq bigint NOT NULL,
    reason text NOT NULL CHECK (reason IN ('approval', 'wait', 'nondeterministic_replay')),
    plan jsonb,
    plan_hash text,
    summary text,
    approvers text[] NOT NULL DEFAULT '{}',
    quorum bigint NOT NULL DEFAULT 1,
    barred text,
    approved_by text[] NOT NULL DEFAULT '{}',
    ref text,
    blocked_at timestamptz NOT NULL,
    expires_at timestamptz,
    on_expiry text,
    remind_every_s double precision,
    resolution text CHECK (
        resolution IN ('approved', 'denied', 'resolved', 'expired', 'superseded', 'retried')
    ),
    resolved_by text,
    resolved_reason text,
    decision_id text,
    resolved_at timestamptz,
    editable boolean NOT NULL DEFAULT false,
    request text,
    edited_hash text,
    acting_episode_id uuid,
    PRIMARY KEY (stack, episode_id, step_no)
) WITH (fillfactor = 80);
COMMENT ON TABLE episode_blocks IS
    'What episodes waited for: requests for approval, and events from other systems.';
COMMENT ON COLUMN episode_blocks.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episode_blocks.episode_id IS 'The episode that waited.';
COMMENT ON COLUMN episode_blocks.step_no IS
    'The step whose result is the answer; the next one if it waits for other code.';
COMMENT ON COLUMN episode_blocks.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN episode_blocks.reason IS
    'approval (a request to people), wait (for an event from another system) or nondeterministic_replay (it waits for other code).';
COMMENT ON COLUMN episode_blocks.plan IS 'What people were asked to approve.';
COMMENT ON COLUMN episode_blocks.plan_hash IS
    'SHA-256 of the plan, in hex; a decision names it. NULL for a wait.';
COMMENT ON COLUMN episode_blocks.summary IS
    'The plan in one sentence; or how the replay differs, of an episode that waits for other code.';
COMMENT ON COLUMN episode_blocks.approvers IS 'Who may decide, by name or as group:NAME; empty: anybody.';
COMMENT ON COLUMN episode_blocks.quorum IS 'How many different people have to approve it.';
COMMENT ON COLUMN episode_blocks.barred IS
    'Who may not decide, as the one who has asked for all of it. NULL: nobody is barred.';
COMMENT ON COLUMN episode_blocks.approved_by IS
    'Who has approved it so far, of those who have to; empty: nobody.';
COMMENT ON COLUMN episode_blocks.ref IS
    'The reference that is waited for. NULL for an approval, or if it waits for other code.';
COMMENT ON COLUMN episode_blocks.blocked_at IS 'When it started waiting.';
COMMENT ON COLUMN episode_blocks.expires_at IS 'Until when it can be answered. NULL: no limit.';
COMMENT ON COLUMN episode_blocks.on_expiry IS
    'What happens if nobody answers in time: deny, approve, continue or fail.';
COMMENT ON COLUMN episode_blocks.remind_every_s IS 'Seconds between two reminders. NULL: none.';
COMMENT ON COLUMN episode_blocks.resolution IS
    'How it ended: approved, denied, resolved (the event has come), expired, superseded (approved for an older episode with an equal request, which acts), or retried (other code is there). NULL: it still waits.';
COMMENT ON COLUMN episode_blocks.resolved_by IS 'Who answered. NULL: nobody.';
COMMENT ON COLUMN episode_blocks.resolved_reason IS 'Why, in words.';
COMMENT ON COLUMN episode_blocks.decision_id IS 'Id of the request that made the decision.';
COMMENT ON COLUMN episode_blocks.resolved_at IS 'When it ended.';
COMMENT ON COLUMN episode_blocks.editable IS
    'Whether the person who approves may change the plan. False for a wait.';
COMMENT ON COLUMN episode_blocks.request IS
    'The same for equal requests about one subject, which one decision answers. NULL: the request is not shared.';
COMMENT ON COLUMN episode_blocks.edited_hash IS
    'SHA-256 of the changed plan that was approved, in hex. NULL: the plan was not changed.';
COMMENT ON COLUMN episode_blocks.acting_episode_id IS
    'If it is superseded: the episode that acts. NULL: otherwise.';


CREATE VIEW running_episodes AS
SELECT
    stack, episode_id, actor_id, expectation_id, node, attempts, subject_kind, subject_id,
    turns_used, tokens_used, budget, started_at, now() - started_at AS running_for, journal_seq
FROM episodes
WHERE status = 'running';
COMMENT ON VIEW running_episodes IS 'Episodes that are running now, and their nodes.';
COMMENT ON COLUMN running_episodes.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN running_episodes.episode_id IS 'The episode.';
COMMENT ON COLUMN running_episodes.actor_id IS 'The actor that runs.';
COMMENT ON COLUMN running_episodes.expectation_id IS
    'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN running_episodes.node IS 'The node that runs it.';
COMMENT ON COLUMN running_episodes.attempts IS 'Starts so far.';
COMMENT ON COLUMN running_episodes.subject_kind IS 'The kind of thing that it is about.';
COMMENT ON COLUMN running_episodes.subject_id IS 'Which thing it is about.';
COMMENT ON COLUMN running_episodes.turns_used IS 'Turns so far; see `episodes`.';
COMMENT ON COLUMN running_episodes.tokens_used IS 'Model tokens so far.';
COMMENT ON COLUMN running_episodes.budget IS
    'Its limits: turns, tokens, wall_s (seconds), usd (US dollars, as text).';
COMMENT ON COLUMN running_episodes.started_at IS 'When it first started.';
COMMENT ON COLUMN running_episodes.running_for IS 'Time since it first started.';
COMMENT ON COLUMN running_episodes.journal_seq IS
    'Sequence of the commit that last changed it, in the journal or in its partition of it.';


CREATE VIEW trigger_requests AS
SELECT
    stack, episode_id, actor_id, expectation_id, opened_by AS source_node,
    stack AS source_stack,
    CASE
        WHEN status = 'canceled' AND error_class = 'expired' THEN 'expired'
        WHEN finished_at IS NOT NULL THEN 'completed'
        WHEN started_at IS NOT NULL THEN 'claimed'
        ELSE 'pending'
    END AS status,
    node AS claimed_by, started_at AS claimed_at, queued_at AS requested_at, journal_seq
FROM episodes
WHERE is_request;
COMMENT ON VIEW trigger_requests IS
    'Episodes that one node opened and left to other nodes to run, and their outcome.';
COMMENT ON COLUMN trigger_requests.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN trigger_requests.episode_id IS 'The requested episode.';
COMMENT ON COLUMN trigger_requests.actor_id IS 'The actor that is to run.';
COMMENT ON COLUMN trigger_requests.expectation_id IS
    'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN trigger_requests.source_node IS 'The node that opened it.';
COMMENT ON COLUMN trigger_requests.source_stack IS 'The stack of that node.';
COMMENT ON COLUMN trigger_requests.status IS
    'pending (no node has started it), claimed (a node has), completed (it has ended, in any way) or expired (not started in time).';
COMMENT ON COLUMN trigger_requests.claimed_by IS 'The node that runs it, or ran it last.';
COMMENT ON COLUMN trigger_requests.claimed_at IS 'When a node first started it.';
COMMENT ON COLUMN trigger_requests.requested_at IS 'When it was requested.';
COMMENT ON COLUMN trigger_requests.journal_seq IS
    'Sequence of the commit that last changed the episode, in the journal or in its partition of it.';


CREATE VIEW episode_forks AS
WITH RECURSIVE forked AS (
    SELECT
        stack, episode_id, forked_from, forked_at_step, forked_by, forked_reason, queued_at,
        actor_id, expectation_id, mode, status, summary, error_class, journal_seq,
        forked_from AS ancestor, 1 AS generation
    FROM episodes
    WHERE forked_from IS NOT NULL
    UNION ALL
    SELECT
        forked.stack, forked.episode_id, forked.forked_from, forked.forked_at_step,
        forked.forked_by, forked.forked_reason, forked.queued_at, forked.actor_id,
        forked.expectation_id, forked.mode, forked.status, forked.summary, forked.error_class,
        forked.journal_seq, parent.forked_from, forked.generation + 1
    FROM forked
    JOIN episodes AS parent
        ON (parent.stack, parent.episode_id) = (forked.stack, forked.ancestor)
    -- An id is computed from its cause, so no episode is its own ancestor; a bound all the same.
    WHERE parent.forked_from IS NOT NULL AND forked.generation < 100
)
SELECT DISTINCT ON (stack, episode_id)
    stack, episode_id, forked_from, ancestor AS origin, generation, forked_at_step, forked_by,
    forked_reason, queued_at AS forked_at, actor_id, expectation_id, mode, status, summary,
    error_class, journal_seq
FROM forked
ORDER BY stack, episode_id, generation DESC;
COMMENT ON VIEW episode_forks IS
    'Forks: the episode whose past each began with, the first one of the chain, and the outcome.';
COMMENT ON COLUMN episode_forks.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episode_forks.episode_id IS 'The fork.';
COMMENT ON COLUMN episode_forks.forked_from IS 'The episode whose past it began with.';
COMMENT ON COLUMN episode_forks.origin IS
    'The episode that is no fork itself: that of forked_from, or of its own, and so on.';
COMMENT ON COLUMN episode_forks.generation IS 'How many forks lead from the origin to it, from 1.';
COMMENT ON COLUMN episode_forks.forked_at_step IS 'The last step that both have.';
COMMENT ON COLUMN episode_forks.forked_by IS 'Who forked it.';
COMMENT ON COLUMN episode_forks.forked_reason IS 'Why, in words.';
COMMENT ON COLUMN episode_forks.forked_at IS 'When it was forked.';
COMMENT ON COLUMN episode_forks.actor_id IS 'The actor that it belongs to.';
COMMENT ON COLUMN episode_forks.expectation_id IS 'The expectation that it belongs to.';
COMMENT ON COLUMN episode_forks.mode IS 'live or dry_run.';
COMMENT ON COLUMN episode_forks.status IS 'Its status.';
COMMENT ON COLUMN episode_forks.summary IS 'Its conclusion, in words.';
COMMENT ON COLUMN episode_forks.error_class IS 'Why it failed: a stable class.';
COMMENT ON COLUMN episode_forks.journal_seq IS
    'Sequence of the commit that last changed its row, in the journal or in its partition of it.';


-- Expectations: whether their episodes kept what they promised, and what budgets would suit them.

CREATE VIEW service_levels AS
SELECT
    newest.stack, newest.actor_id, newest.expectation_id,
    (newest.service_level ->> 'start_s')::double precision AS start_s,
    (newest.service_level ->> 'end_s')::double precision AS end_s,
    (newest.service_level ->> 'success')::double precision AS success,
    (newest.service_level ->> 'window')::bigint AS episodes_max,
    counted.episodes, counted.met, counted.late_start, counted.failed, counted.late_end,
    counted.met::double precision / counted.episodes AS ratio,
    counted.met >= (newest.service_level ->> 'success')::numeric * counted.episodes AS is_kept,
    counted.start_p50_s, counted.start_p95_s, counted.end_p50_s, counted.end_p95_s,
    counted.since, newest.finished_at AS until, newest.journal_seq
FROM (
    SELECT DISTINCT ON (stack, actor_id, expectation_id)
        stack, actor_id, expectation_id, service_level, finished_at, journal_seq
    FROM episodes
    WHERE level_outcome IS NOT NULL
    ORDER BY stack, actor_id, expectation_id, finished_at DESC, episode_id
) AS newest
CROSS JOIN LATERAL (
    SELECT
        count(*) AS episodes,
        count(*) FILTER (WHERE level_outcome = 'met') AS met,
        count(*) FILTER (WHERE level_outcome = 'late_start') AS late_start,
        count(*) FILTER (WHERE level_outcome = 'failed') AS failed,
        count(*) FILTER (WHERE level_outcome = 'late_end') AS late_end,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY start_s) AS start_p50_s,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY start_s) AS start_p95_s,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY end_s) AS end_p50_s,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY end_s) AS end_p95_s,
        min(finished_at) AS since
    FROM (
        SELECT
            level_outcome, finished_at,
            extract(epoch FROM started_at - queued_at)::double precision AS start_s,
            extract(epoch FROM finished_at - queued_at)::double precision AS end_s
        FROM episodes AS episode
        WHERE (episode.stack, episode.actor_id, episode.expectation_id)
            = (newest.stack, newest.actor_id, newest.expectation_id)
            AND level_outcome IS NOT NULL
        ORDER BY finished_at DESC, episode_id
        LIMIT (newest.service_level ->> 'window')::bigint  -- guard: level-rows-window
    ) AS latest
) AS counted;
COMMENT ON VIEW service_levels IS
    'What expectations promise, and how many of their latest episodes have kept it.';
COMMENT ON COLUMN service_levels.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN service_levels.actor_id IS 'The actor.';
COMMENT ON COLUMN service_levels.expectation_id IS 'The expectation that promises it.';
COMMENT ON COLUMN service_levels.start_s IS
    'Longest time from opening to start that is promised, in seconds. 0: any.';
COMMENT ON COLUMN service_levels.end_s IS
    'Longest time from opening to end that is promised, in seconds. 0: any.';
COMMENT ON COLUMN service_levels.success IS 'The objective: share of episodes that keep it.';
COMMENT ON COLUMN service_levels.episodes_max IS
    'The window: how many of the latest episodes are counted.';
COMMENT ON COLUMN service_levels.episodes IS 'How many there are by now.';
COMMENT ON COLUMN service_levels.met IS 'Those that kept it.';
COMMENT ON COLUMN service_levels.late_start IS 'Those that started too late.';
COMMENT ON COLUMN service_levels.failed IS 'Those that failed.';
COMMENT ON COLUMN service_levels.late_end IS 'Those that ended too late.';
COMMENT ON COLUMN service_levels.ratio IS 'Share of those that kept it, 0 to 1.';
COMMENT ON COLUMN service_levels.is_kept IS 'Whether the objective is reached.';
COMMENT ON COLUMN service_levels.start_p50_s IS 'Median time from opening to start, in seconds.';
COMMENT ON COLUMN service_levels.start_p95_s IS
    '95th percentile of the time from opening to start, in seconds.';
COMMENT ON COLUMN service_levels.end_p50_s IS 'Median time from opening to end, in seconds.';
COMMENT ON COLUMN service_levels.end_p95_s IS
    '95th percentile of the time from opening to end, in seconds.';
COMMENT ON COLUMN service_levels.since IS 'When the first of those counted ended.';
COMMENT ON COLUMN service_levels.until IS 'When the last one ended.';
COMMENT ON COLUMN service_levels.journal_seq IS
    'Sequence of the commit that last changed the row of that last one, in the journal or in its partition of it.';


-- What suits is the 95th percentile of what the latest 100 used, and a quarter more.
CREATE VIEW budget_recommendations AS
SELECT
    newest.stack, newest.actor_id, newest.expectation_id, newest.budget,
    used.episodes, used.exhausted,
    used.turns_p50, used.turns_p95, used.turns_max,
    used.tokens_p50, used.tokens_p95, used.tokens_max,
    used.wall_p50_s, used.wall_p95_s, used.wall_max_s,
    -- guard: budget-rows-need-five
    CASE WHEN used.episodes >= 5 THEN ceil(1.25 * used.turns_p95)::bigint END AS turns,
    CASE WHEN used.episodes >= 5 THEN ceil(1.25 * used.tokens_p95)::bigint END AS tokens,
    CASE WHEN used.episodes >= 5 THEN ceil(1.25 * used.wall_p95_s) END AS wall_s,
    newest.journal_seq
FROM (
    SELECT DISTINCT ON (stack, actor_id, expectation_id)
        stack, actor_id, expectation_id, budget, journal_seq
    FROM episodes
    WHERE started_at IS NOT NULL
    ORDER BY stack, actor_id, expectation_id, started_at DESC
) AS newest
CROSS JOIN LATERAL (
    SELECT
        count(*) AS episodes,
        count(*) FILTER (WHERE error_class = 'budget_exceeded') AS exhausted,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY turns_used) AS turns_p50,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY turns_used) AS turns_p95,
        max(turns_used) AS turns_max,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY tokens_used) AS tokens_p50,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY tokens_used) AS tokens_p95,
        max(tokens_used) AS tokens_max,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY used_s) AS wall_p50_s,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY used_s) AS wall_p95_s,
        max(used_s) AS wall_max_s
    FROM (
        SELECT
            turns_used, tokens_used, wall_used_ms::double precision / 1000 AS used_s, error_class
        FROM episodes AS episode
        WHERE (episode.stack, episode.actor_id, episode.expectation_id)
            = (newest.stack, newest.actor_id, newest.expectation_id)
            AND episode.started_at IS NOT NULL
            AND episode.mode = 'live'  -- guard: budget-rows-meant-only
            AND episode.forked_from IS NULL
            -- What failed for another reason, or was canceled, had not used what it needs.
            AND (
                episode.status IN ('done', 'partially_failed')
                OR episode.error_class = 'budget_exceeded'  -- guard: budget-rows-exhausted-count
            )
        ORDER BY episode.started_at DESC
        LIMIT 100  -- guard: budget-rows-latest-hundred
    ) AS latest
) AS used
WHERE used.episodes > 0;
COMMENT ON VIEW budget_recommendations IS
    'What the latest 100 episodes of each expectation used of their budgets, and what would suit them. Only advice: nothing applies it.';
COMMENT ON COLUMN budget_recommendations.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN budget_recommendations.actor_id IS 'The actor.';
COMMENT ON COLUMN budget_recommendations.expectation_id IS 'The expectation.';
COMMENT ON COLUMN budget_recommendations.budget IS
    'What its latest episode may use: turns, tokens, wall_s (seconds), usd (US dollars, as text). 0 or less: no limit.';
COMMENT ON COLUMN budget_recommendations.episodes IS
    'How many episodes this is of: live ones that were done or partially_failed, or used their budget up.';
COMMENT ON COLUMN budget_recommendations.exhausted IS
    'Those that failed because their budget was used up: they would have needed more.';
COMMENT ON COLUMN budget_recommendations.turns_p50 IS 'Median of the turns that they used.';
COMMENT ON COLUMN budget_recommendations.turns_p95 IS '95th percentile of the turns.';
COMMENT ON COLUMN budget_recommendations.turns_max IS 'Most turns that one of them used.';
COMMENT ON COLUMN budget_recommendations.tokens_p50 IS 'Median of the model tokens that they used.';
COMMENT ON COLUMN budget_recommendations.tokens_p95 IS '95th percentile of the tokens.';
COMMENT ON COLUMN budget_recommendations.tokens_max IS 'Most tokens that one of them used.';
COMMENT ON COLUMN budget_recommendations.wall_p50_s IS
    'Median of the time that they ran, in seconds.';
COMMENT ON COLUMN budget_recommendations.wall_p95_s IS
    '95th percentile of the time that they ran, in seconds.';
COMMENT ON COLUMN budget_recommendations.wall_max_s IS
    'Longest time that one of them ran, in seconds.';
COMMENT ON COLUMN budget_recommendations.turns IS
    'Turns that would suit: the 95th percentile and a quarter more, rounded up. NULL: fewer than 5 episodes.';
COMMENT ON COLUMN budget_recommendations.tokens IS
    'Tokens that would suit, in the same way; 0: none were used.';
COMMENT ON COLUMN budget_recommendations.wall_s IS 'Seconds that would suit, in the same way.';
COMMENT ON COLUMN budget_recommendations.journal_seq IS
    'Sequence of the commit that last changed the row of its latest episode, in the journal or in its partition of it.';


-- Lanes: the episodes of an actor whose limits hold in the whole cluster, and their order.

CREATE TABLE lane_tickets (
    stack text NOT NULL,
    actor_id text NOT NULL,
    episode_id uuid NOT NULL,
    journal_seq bigint NOT NULL,
    expectation_id text NOT NULL,
    number bigint NOT NULL,
    priority bigint NOT NULL,
    lane_key text,
    state text NOT NULL CHECK (state IN ('waiting', 'admitted')),
    PRIMARY KEY (stack, actor_id, episode_id)
) WITH (fillfactor = 80);
COMMENT ON TABLE lane_tickets IS
    'Episodes that wait for their turn or have it, of actors with limits for the whole cluster. A row is deleted when its episode ends, or loses its place.';
COMMENT ON COLUMN lane_tickets.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN lane_tickets.actor_id IS 'The actor whose lane it is.';
COMMENT ON COLUMN lane_tickets.episode_id IS 'The episode that has the place.';
COMMENT ON COLUMN lane_tickets.journal_seq IS
    'Sequence of the commit that last changed the row, in the state or in its partition of it.';
COMMENT ON COLUMN lane_tickets.expectation_id IS
    'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN lane_tickets.number IS
    'Position in the order of the causes. Within one priority the lowest goes first.';
COMMENT ON COLUMN lane_tickets.priority IS
    'A higher priority goes first: each is worth 100 numbers.';
COMMENT ON COLUMN lane_tickets.lane_key IS
    'The value of the concurrency key, or its hash if it is long: the number of episodes that run with one value is limited. NULL: no key.';
COMMENT ON COLUMN lane_tickets.state IS
    'waiting: for its turn. admitted: it runs as soon as a node has a free slot.';


-- A priority is worth so many places in the order of the causes (PLACES_PER_PRIORITY in
-- engine/lanes/lane.py).
CREATE VIEW queued_episodes AS
SELECT
    episode.stack, episode.episode_id, episode.actor_id, episode.expectation_id,
    turn.position, turn.priority, turn.lane_key, episode.subject_kind, episode.subject_id,
    episode.queued_at, now() - episode.queued_at AS queued_for, episode.journal_seq
FROM episodes AS episode
LEFT JOIN (
    SELECT
        stack, actor_id, episode_id, priority, lane_key,
        row_number() OVER (
            PARTITION BY stack, actor_id ORDER BY number - 100 * priority, number
        ) AS position
    FROM lane_tickets
    WHERE state = 'waiting'
) AS turn USING (stack, actor_id, episode_id)
WHERE episode.status = 'queued';
COMMENT ON VIEW queued_episodes IS 'Episodes that wait to run, in their order.';
COMMENT ON COLUMN queued_episodes.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN queued_episodes.episode_id IS 'The episode.';
COMMENT ON COLUMN queued_episodes.actor_id IS 'The actor that is to run.';
COMMENT ON COLUMN queued_episodes.expectation_id IS
    'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN queued_episodes.position IS
    'Position among the episodes of its actor that wait for their turn, from 1; one whose concurrency key is busy is passed over. NULL: it only waits for a node with a free slot.';
COMMENT ON COLUMN queued_episodes.priority IS
    'A higher priority goes first: each is worth 100 places. NULL: it waits for no turn.';
COMMENT ON COLUMN queued_episodes.lane_key IS
    'The value of the concurrency key: the number of episodes that run with one value is limited. NULL: no key, or it waits for no turn.';
COMMENT ON COLUMN queued_episodes.subject_kind IS 'The kind of thing that it is about.';
COMMENT ON COLUMN queued_episodes.subject_id IS 'Which thing it is about.';
COMMENT ON COLUMN queued_episodes.queued_at IS 'When it was opened.';
COMMENT ON COLUMN queued_episodes.queued_for IS 'Time since it was opened.';
COMMENT ON COLUMN queued_episodes.journal_seq IS
    'Sequence of the commit that last changed the episode, in the journal or in its partition of it.';


-- Findings: when they end, how their age makes them worse, what people do to them, and what
-- explains them.

CREATE TYPE severity AS ENUM ('low', 'medium', 'high', 'critical');
COMMENT ON TYPE severity IS 'How bad a finding is. Ordered: low < medium < high < critical.';


CREATE TABLE findings (
    stack text NOT NULL,
    finding_key text NOT NULL,
    raise_no bigint NOT NULL,
    journal_seq bigint NOT NULL,
    status text NOT NULL,
    actor_id text NOT NULL,
    expectation_id text NOT NULL,
    class text NOT NULL,
    severity severity NOT NULL,
    confidence double precision NOT NULL,
    summary text NOT NULL,
    subject_kind text,
    subject_id text,
    evidence_refs jsonb,
    caused_by_key text,
    raised_by_episode_id uuid,
    raised_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    cleared_by_episode_id uuid,
    cleared_at timestamptz,
    cleared_reason text,
    cleared_by text,
    ttl_s double precision,
    expires_at timestamptz,
    escalated_to severity,
    acknowledged_by text,
    acknowledged_at timestamptz,
    superseded_at timestamptz,
    PRIMARY KEY (stack, finding_key, raise_no)
) WITH (fillfactor = 80);
COMMENT ON TABLE findings IS
    'Lasting observations about subjects. One row per raise; at most one per key is active.';
COMMENT ON COLUMN findings.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN findings.finding_key IS
    'Its identity: raising the same key again refreshes the finding.';
COMMENT ON COLUMN findings.raise_no IS 'From 1; a raise after its end is a new one.';
COMMENT ON COLUMN findings.journal_seq IS
    'Sequence of the commit that last changed the row, in the state or in its partition of it.';
COMMENT ON COLUMN findings.status IS
    'active; cleared: an episode or a person has ended it; expired: nobody has raised or updated it within its time to live; superseded: it had ended, and has been raised again since.';
COMMENT ON COLUMN findings.actor_id IS 'The actor that raised it.';
COMMENT ON COLUMN findings.expectation_id IS 'The expectation whose episode raised it.';
COMMENT ON COLUMN findings.class IS 'What kind of finding it is.';
COMMENT ON COLUMN findings.severity IS
    'How bad it is: low < medium < high < critical. It may have been escalated.';
COMMENT ON COLUMN findings.confidence IS 'How sure its actor is, 0 to 1.';
COMMENT ON COLUMN findings.summary IS 'The observation in words.';
COMMENT ON COLUMN findings.subject_kind IS 'The kind of thing that it is about.';
COMMENT ON COLUMN findings.subject_id IS 'Which thing it is about.';
COMMENT ON COLUMN findings.evidence_refs IS 'The evidence for it.';
COMMENT ON COLUMN findings.caused_by_key IS 'Key of the finding that explains this one.';
COMMENT ON COLUMN findings.raised_by_episode_id IS 'The episode that raised it.';
COMMENT ON COLUMN findings.raised_at IS 'When it was raised.';
COMMENT ON COLUMN findings.updated_at IS
    'When it was last raised, refreshed, changed or ended. Notes and acknowledgements do not count.';
COMMENT ON COLUMN findings.cleared_by_episode_id IS
    'The episode that cleared it. NULL: a person cleared it, or it expired.';
COMMENT ON COLUMN findings.cleared_at IS 'When it was cleared, or expired.';
COMMENT ON COLUMN findings.cleared_reason IS 'Why it was cleared, in words.';
COMMENT ON COLUMN findings.cleared_by IS 'The person who cleared it.';
COMMENT ON COLUMN findings.ttl_s IS
    'Its time to live in seconds, counted from each raise or update. NULL: expires_at is fixed, if there is one.';
COMMENT ON COLUMN findings.expires_at IS
    'When it expires unless it is raised, updated or cleared before. NULL: never.';
COMMENT ON COLUMN findings.escalated_to IS
    'The severity that it was escalated to, which is its minimum from then on.';
COMMENT ON COLUMN findings.acknowledged_by IS 'The person who acknowledged it.';
COMMENT ON COLUMN findings.acknowledged_at IS 'When it was acknowledged.';
COMMENT ON COLUMN findings.superseded_at IS 'When it was raised again.';

-- In the order of the list, so that a page begins where the last one ended: `sql/list_findings.sql`.
CREATE INDEX findings_by_status ON findings
    (stack, status, severity DESC, updated_at DESC, finding_key DESC, raise_no DESC);
CREATE INDEX findings_by_actor ON findings (stack, actor_id, updated_at DESC);
CREATE INDEX findings_by_subject ON findings USING hash (subject_id);
-- For those who ask what a finding explains.
CREATE INDEX findings_by_cause ON findings USING hash (caused_by_key);
CREATE INDEX findings_expiring ON findings (stack, expires_at) WHERE status = 'active';
CREATE INDEX findings_over ON findings
    (stack, actor_id, coalesce(cleared_at, superseded_at, updated_at), finding_key)
    WHERE status <> 'active';


CREATE TABLE finding_events (
    stack text NOT NULL,
    finding_key text NOT NULL,
    journal_seq bigint NOT NULL,
    event_no bigint NOT NULL,
    kind text NOT NULL,
    raise_no bigint NOT NULL,
    episode_id uuid,
    status text NOT NULL,
    severity severity NOT NULL,
    confidence double precision NOT NULL,
    summary text NOT NULL,
    evidence_refs jsonb,
    at timestamptz NOT NULL,
    from_severity severity,
    person text,
    reason text,
    expires_at timestamptz,
    PRIMARY KEY (stack, finding_key, journal_seq, event_no)
);
COMMENT ON TABLE finding_events IS
    'The history of findings, in order, with the values from then on.';
COMMENT ON COLUMN finding_events.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN finding_events.finding_key IS 'The finding.';
COMMENT ON COLUMN finding_events.journal_seq IS
    'Sequence of its commit, in the state or in its partition of it.';
COMMENT ON COLUMN finding_events.event_no IS 'Position within that commit, from 0.';
COMMENT ON COLUMN finding_events.kind IS
    'finding_raised, finding_updated, finding_cleared, finding_expired, finding_escalated, finding_acknowledged or finding_noted.';
COMMENT ON COLUMN finding_events.raise_no IS 'Which raise of the finding.';
COMMENT ON COLUMN finding_events.episode_id IS
    'The episode that caused it. NULL: a person did, or a timer.';
COMMENT ON COLUMN finding_events.status IS 'The finding''s status after it.';
COMMENT ON COLUMN finding_events.severity IS 'Its severity after it.';
COMMENT ON COLUMN finding_events.confidence IS 'Its confidence after it.';
COMMENT ON COLUMN finding_events.summary IS 'Its summary after it.';
COMMENT ON COLUMN finding_events.evidence_refs IS 'Its evidence after it.';
COMMENT ON COLUMN finding_events.at IS 'When it happened.';
COMMENT ON COLUMN finding_events.from_severity IS 'Its severity before an escalation.';
COMMENT ON COLUMN finding_events.person IS 'The person who did it. NULL: an episode or a timer.';
COMMENT ON COLUMN finding_events.reason IS
    'Why it was cleared or acknowledged, or the text of the note.';
COMMENT ON COLUMN finding_events.expires_at IS 'When the finding expires, after it.';

CREATE INDEX finding_events_by_episode ON finding_events (stack, episode_id);


CREATE VIEW active_findings AS
SELECT
    stack, finding_key, raise_no, severity, class, summary, confidence, subject_kind,
    subject_id, actor_id, expectation_id, caused_by_key, raised_by_episode_id, raised_at,
    updated_at, evidence_refs, journal_seq, expires_at, escalated_to, acknowledged_by,
    acknowledged_at
FROM findings
WHERE status = 'active';
COMMENT ON VIEW active_findings IS 'Findings that are active now.';
COMMENT ON COLUMN active_findings.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN active_findings.finding_key IS 'Its identity.';
COMMENT ON COLUMN active_findings.raise_no IS 'Which raise of the key.';
COMMENT ON COLUMN active_findings.severity IS 'How bad it is: low < medium < high < critical.';
COMMENT ON COLUMN active_findings.class IS 'What kind of finding it is.';
COMMENT ON COLUMN active_findings.summary IS 'The observation in words.';
COMMENT ON COLUMN active_findings.confidence IS 'How sure its actor is, 0 to 1.';
COMMENT ON COLUMN active_findings.subject_kind IS 'The kind of thing that it is about.';
COMMENT ON COLUMN active_findings.subject_id IS 'Which thing it is about.';
COMMENT ON COLUMN active_findings.actor_id IS 'The actor that raised it.';
COMMENT ON COLUMN active_findings.expectation_id IS 'The expectation whose episode raised it.';
COMMENT ON COLUMN active_findings.caused_by_key IS 'Key of the finding that explains this one.';
COMMENT ON COLUMN active_findings.raised_by_episode_id IS 'The episode that raised it.';
COMMENT ON COLUMN active_findings.raised_at IS 'When it was raised.';
COMMENT ON COLUMN active_findings.updated_at IS 'When it was last refreshed or changed.';
COMMENT ON COLUMN active_findings.evidence_refs IS 'The evidence for it.';
COMMENT ON COLUMN active_findings.journal_seq IS
    'Sequence of the commit that last changed it, in the state or in its partition of it.';
COMMENT ON COLUMN active_findings.expires_at IS
    'When it expires unless it is raised, updated or cleared before. NULL: never.';
COMMENT ON COLUMN active_findings.escalated_to IS
    'The severity that it was escalated to, which is its minimum from then on.';
COMMENT ON COLUMN active_findings.acknowledged_by IS 'The person who acknowledged it.';
COMMENT ON COLUMN active_findings.acknowledged_at IS 'When it was acknowledged.';


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

-- Money: what requests to models have cost.

CREATE VIEW model_requests AS
SELECT
    step.stack, step.episode_id, step.step_no, episode.actor_id, episode.expectation_id,
    step.kind, split_part(step.agent, ':', 1) AS agent, step.model, step.created_at AS at,
    (step.created_at AT TIME ZONE 'UTC')::date AS day,
    step.input_tokens, step.output_tokens, step.cost_tokens AS tokens, step.cost_usd,
    step.error_class, step.journal_seq
FROM episode_steps AS step
JOIN episodes AS episode USING (stack, episode_id)
WHERE step.state = 'recorded'
    AND (step.kind IN ('model_request', 'synthesis') OR step.cost_usd IS NOT NULL)
    AND NOT step.is_override  -- guard: override-costs-nothing
    -- guard: forks-past-costs-once
    AND (episode.forked_at_step IS NULL OR step.step_no > episode.forked_at_step);
COMMENT ON VIEW model_requests IS
    'Requests of agents and syntheses to models, once each: without overrides of dry runs, and without the past that a fork began with.';
COMMENT ON COLUMN model_requests.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN model_requests.episode_id IS 'The episode that asked.';
COMMENT ON COLUMN model_requests.step_no IS 'Its step.';
COMMENT ON COLUMN model_requests.actor_id IS 'The actor of the episode.';
COMMENT ON COLUMN model_requests.expectation_id IS 'The expectation of the episode.';
COMMENT ON COLUMN model_requests.kind IS 'model_request (of an agent) or synthesis.';
COMMENT ON COLUMN model_requests.agent IS 'The name of the agent. NULL: none asked.';
COMMENT ON COLUMN model_requests.model IS 'The model that answered. NULL: none did.';
COMMENT ON COLUMN model_requests.at IS 'When the answer was recorded.';
COMMENT ON COLUMN model_requests.day IS 'The day of that, in UTC.';
COMMENT ON COLUMN model_requests.input_tokens IS 'Tokens of the input. NULL: not reported.';
COMMENT ON COLUMN model_requests.output_tokens IS 'Tokens of the output. NULL: not reported.';
COMMENT ON COLUMN model_requests.tokens IS 'Model tokens, input and output together.';
COMMENT ON COLUMN model_requests.cost_usd IS
    'What it has cost, in US dollars, by the price of that moment. NULL: nobody knows.';
COMMENT ON COLUMN model_requests.error_class IS 'Why it failed: a stable class.';
COMMENT ON COLUMN model_requests.journal_seq IS
    'Sequence of the commit that last changed the row of its step, in the journal or in its partition of it.';


CREATE VIEW costs_by_actor AS
SELECT
    stack, actor_id,
    count(*) AS requests,
    count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced,
    sum(tokens)::bigint AS tokens,
    coalesce(sum(cost_usd), 0) AS cost_usd,
    min(at) AS since, max(at) AS until,
    max(journal_seq) AS journal_seq
FROM model_requests
GROUP BY stack, actor_id;
COMMENT ON VIEW costs_by_actor IS
    'What requests to models have cost, for each actor.';
COMMENT ON COLUMN costs_by_actor.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN costs_by_actor.actor_id IS 'The actor.';
COMMENT ON COLUMN costs_by_actor.requests IS 'How many requests there were.';
COMMENT ON COLUMN costs_by_actor.unpriced IS 'Those of which nobody knows the cost.';
COMMENT ON COLUMN costs_by_actor.tokens IS 'Model tokens, input and output together.';
COMMENT ON COLUMN costs_by_actor.cost_usd IS 'What the others have cost, in US dollars.';
COMMENT ON COLUMN costs_by_actor.since IS 'When the first one was recorded.';
COMMENT ON COLUMN costs_by_actor.until IS 'When the last one was.';
COMMENT ON COLUMN costs_by_actor.journal_seq IS
    'The largest sequence of a commit that last changed the row of one of them, in the journal or in its partition of it.';


CREATE VIEW costs_by_model AS
SELECT
    stack, model,
    count(*) AS requests,
    count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced,
    sum(tokens)::bigint AS tokens,
    coalesce(sum(cost_usd), 0) AS cost_usd,
    min(at) AS since, max(at) AS until,
    max(journal_seq) AS journal_seq
FROM model_requests
GROUP BY stack, model;
COMMENT ON VIEW costs_by_model IS
    'What requests to models have cost, for each model.';
COMMENT ON COLUMN costs_by_model.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN costs_by_model.model IS 'The model that answered. NULL: none did.';
COMMENT ON COLUMN costs_by_model.requests IS 'How many requests there were.';
COMMENT ON COLUMN costs_by_model.unpriced IS 'Those of which nobody knows the cost.';
COMMENT ON COLUMN costs_by_model.tokens IS 'Model tokens, input and output together.';
COMMENT ON COLUMN costs_by_model.cost_usd IS 'What the others have cost, in US dollars.';
COMMENT ON COLUMN costs_by_model.since IS 'When the first one was recorded.';
COMMENT ON COLUMN costs_by_model.until IS 'When the last one was.';
COMMENT ON COLUMN costs_by_model.journal_seq IS
    'The largest sequence of a commit that last changed the row of one of them, in the journal or in its partition of it.';


CREATE VIEW costs_by_day AS
SELECT
    stack, day,
    count(*) AS requests,
    count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced,
    sum(tokens)::bigint AS tokens,
    coalesce(sum(cost_usd), 0) AS cost_usd,
    min(at) AS since, max(at) AS until,
    max(journal_seq) AS journal_seq
FROM model_requests
GROUP BY stack, day;
COMMENT ON VIEW costs_by_day IS
    'What requests to models have cost, for each day.';
COMMENT ON COLUMN costs_by_day.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN costs_by_day.day IS 'The day, in UTC.';
COMMENT ON COLUMN costs_by_day.requests IS 'How many requests there were.';
COMMENT ON COLUMN costs_by_day.unpriced IS 'Those of which nobody knows the cost.';
COMMENT ON COLUMN costs_by_day.tokens IS 'Model tokens, input and output together.';
COMMENT ON COLUMN costs_by_day.cost_usd IS 'What the others have cost, in US dollars.';
COMMENT ON COLUMN costs_by_day.since IS 'When the first one was recorded.';
COMMENT ON COLUMN costs_by_day.until IS 'When the last one was.';
COMMENT ON COLUMN costs_by_day.journal_seq IS
    'The largest sequence of a commit that last changed the row of one of them, in the journal or in its partition of it.';


CREATE VIEW costs_by_finding AS
SELECT
    stack, finding_key,
    count(*) AS requests,
    count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced,
    sum(tokens)::bigint AS tokens,
    coalesce(sum(cost_usd), 0) AS cost_usd,
    min(at) AS since, max(at) AS until,
    max(journal_seq) AS journal_seq
FROM (
    SELECT request.*, touched.finding_key
    FROM (
        SELECT DISTINCT stack, finding_key, episode_id FROM finding_events
    ) AS touched
    JOIN model_requests AS request USING (stack, episode_id)
) AS requests
GROUP BY stack, finding_key;
COMMENT ON VIEW costs_by_finding IS
    'What the episodes that raised, updated or cleared a finding have spent on requests to models, for each finding. An episode with several findings counts for each of them.';
COMMENT ON COLUMN costs_by_finding.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN costs_by_finding.finding_key IS 'The finding.';
COMMENT ON COLUMN costs_by_finding.requests IS 'How many requests there were.';
COMMENT ON COLUMN costs_by_finding.unpriced IS 'Those of which nobody knows the cost.';
COMMENT ON COLUMN costs_by_finding.tokens IS 'Model tokens, input and output together.';
COMMENT ON COLUMN costs_by_finding.cost_usd IS 'What the others have cost, in US dollars.';
COMMENT ON COLUMN costs_by_finding.since IS 'When the first one was recorded.';
COMMENT ON COLUMN costs_by_finding.until IS 'When the last one was.';
COMMENT ON COLUMN costs_by_finding.journal_seq IS
    'The largest sequence of a commit that last changed the row of one of them, in the journal or in its partition of it.';


-- Outputs: what goes to the outside.

CREATE TABLE outputs (
    stack text NOT NULL,
    output_key text NOT NULL,
    journal_seq bigint NOT NULL,
    proposal_no bigint NOT NULL,
    episode_id uuid,
    actor_id text NOT NULL,
    expectation_id text NOT NULL,
    adapter text NOT NULL,
    status text NOT NULL CHECK (status IN (
        'awaiting_approval', 'proposed', 'delivered', 'failed', 'rejected', 'canceled'
    )),
    payload jsonb,
    payload_hash text,
    summary text,
    approvers text[] NOT NULL DEFAULT '{}',
    quorum bigint NOT NULL DEFAULT 1,
    barred text,
    approved_by text[] NOT NULL DEFAULT '{}',
    expires_at timestamptz,
    on_expiry text,
    remind_every_s double precision,
    resolution text CHECK (resolution IN ('approved', 'denied', 'expired')),
    decided_by text,
    decided_reason text,
    decision_id text,
    decided_at timestamptz,
    attempts bigint NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    delivered_ref text,
    error_class text,
    error_detail text,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    delivered_at timestamptz,
    canceled_at timestamptz,
    asked_at timestamptz,
    edited_hash text,
    PRIMARY KEY (stack, output_key)
) WITH (fillfactor = 80);
COMMENT ON TABLE outputs IS
    'What episodes deliver to the outside, as it was last proposed. One row for each key.';
COMMENT ON COLUMN outputs.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN outputs.output_key IS 'Its identity: outputs with the same key are the same.';
COMMENT ON COLUMN outputs.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN outputs.proposal_no IS
    'From 1; grows when the key is proposed again, after it failed, was canceled, or was not approved in time.';
COMMENT ON COLUMN outputs.episode_id IS 'The episode that proposed it.';
COMMENT ON COLUMN outputs.actor_id IS 'The actor whose episode it is.';
COMMENT ON COLUMN outputs.expectation_id IS 'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN outputs.adapter IS 'The name of its adapter in the app.';
COMMENT ON COLUMN outputs.status IS
    'awaiting_approval, proposed (to be delivered), delivered, failed (for good, unless a person retries it), rejected (denied, or not approved in time) or canceled (alone, or with its episode).';
COMMENT ON COLUMN outputs.payload IS 'What is delivered.';
COMMENT ON COLUMN outputs.payload_hash IS
    'SHA-256 of the payload, in hex: a decision names it. NULL: it needs no approval.';
COMMENT ON COLUMN outputs.summary IS 'One sentence for its approvers.';
COMMENT ON COLUMN outputs.approvers IS 'Who may approve it, by name or as group:NAME; empty: anybody.';
COMMENT ON COLUMN outputs.quorum IS 'How many different people have to approve it.';
COMMENT ON COLUMN outputs.barred IS
    'Who may not decide, as the one who has asked for all of it. NULL: nobody is barred.';
COMMENT ON COLUMN outputs.approved_by IS
    'Who has approved it so far, of those who have to; empty: nobody.';
COMMENT ON COLUMN outputs.expires_at IS 'Until when it can be approved. NULL: no limit.';
COMMENT ON COLUMN outputs.on_expiry IS
    'What happens if nobody decides in time: deny, approve or fail.';
COMMENT ON COLUMN outputs.remind_every_s IS
    'Seconds between two reminders that it waits for approval. NULL: none.';
COMMENT ON COLUMN outputs.resolution IS
    'What was decided: approved, denied or expired (nobody decided in time). NULL: nothing.';
COMMENT ON COLUMN outputs.decided_by IS 'Who decided. NULL: nobody.';
COMMENT ON COLUMN outputs.decided_reason IS 'Why, in words.';
COMMENT ON COLUMN outputs.decision_id IS 'Id of the request that made the decision.';
COMMENT ON COLUMN outputs.decided_at IS 'When it was decided.';
COMMENT ON COLUMN outputs.attempts IS 'Calls of the adapter for this proposal.';
COMMENT ON COLUMN outputs.next_attempt_at IS
    'Time of the next attempt, at the earliest. NULL: none is scheduled.';
COMMENT ON COLUMN outputs.delivered_ref IS 'The receiver''s reference for it.';
COMMENT ON COLUMN outputs.error_class IS
    'Why the last attempt failed: a stable class. NULL: it did not fail, or another one is under way.';
COMMENT ON COLUMN outputs.error_detail IS 'Why the last attempt failed, in words.';
COMMENT ON COLUMN outputs.created_at IS 'When it was proposed.';
COMMENT ON COLUMN outputs.updated_at IS 'When it was last changed.';
COMMENT ON COLUMN outputs.delivered_at IS 'When it was delivered.';
COMMENT ON COLUMN outputs.canceled_at IS 'When it was canceled.';
COMMENT ON COLUMN outputs.asked_at IS
    'When approval was last requested. NULL: it needs no approval.';
COMMENT ON COLUMN outputs.edited_hash IS
    'SHA-256 of the changed payload that was approved, in hex; `payload` has the changes. NULL: it was not changed.';

CREATE INDEX outputs_by_time ON outputs (stack, created_at DESC, output_key DESC);
CREATE INDEX outputs_by_status ON outputs (stack, status, created_at DESC, output_key DESC);
CREATE INDEX outputs_by_episode ON outputs (stack, episode_id);
-- For those that ever waited for people: `inbox_at`.
CREATE INDEX outputs_asked ON outputs (stack, created_at) WHERE payload_hash IS NOT NULL;
CREATE INDEX outputs_settled ON outputs (stack, actor_id, created_at, output_key)
    WHERE status IN ('delivered', 'failed', 'rejected', 'canceled');


CREATE TABLE output_events (
    stack text NOT NULL,
    output_key text NOT NULL,
    journal_seq bigint NOT NULL,
    event_no bigint NOT NULL,
    kind text NOT NULL,
    at timestamptz NOT NULL,
    proposal_no bigint,
    episode_id uuid,
    attempt bigint,
    node text,
    person text,
    reason text,
    error_class text,
    error_detail text,
    next_attempt_at timestamptz,
    delivered_ref text,
    status text,
    PRIMARY KEY (stack, output_key, journal_seq, event_no)
);
COMMENT ON COLUMN output_events.status IS 'The output''s status from then on.';
COMMENT ON TABLE output_events IS
    'The history of outputs, in order: every decision and every attempt.';
COMMENT ON COLUMN output_events.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN output_events.output_key IS 'The output.';
COMMENT ON COLUMN output_events.journal_seq IS
    'Sequence of its commit, in the journal or in its partition of it.';
COMMENT ON COLUMN output_events.event_no IS 'Position within that commit, from 0.';
COMMENT ON COLUMN output_events.kind IS
    'output_proposed, output_approved, output_rejected, output_attempted, output_postponed, output_delivered, output_failed, output_retried or output_canceled.';
COMMENT ON COLUMN output_events.at IS 'When it happened.';
COMMENT ON COLUMN output_events.proposal_no IS 'Number of a new proposal. NULL: it is no proposal.';
COMMENT ON COLUMN output_events.episode_id IS
    'The episode that proposes it. NULL: it is no proposal.';
COMMENT ON COLUMN output_events.attempt IS 'Number of the attempt at its proposal, from 1.';
COMMENT ON COLUMN output_events.node IS 'The node that calls the adapter.';
COMMENT ON COLUMN output_events.person IS
    'Who decided, retried or canceled it; NULL of a decision: it expired.';
COMMENT ON COLUMN output_events.reason IS 'Why, in words.';
COMMENT ON COLUMN output_events.error_class IS 'Why the attempt failed: a stable class.';
COMMENT ON COLUMN output_events.error_detail IS 'Why the attempt failed, in words.';
COMMENT ON COLUMN output_events.next_attempt_at IS 'Time of the next attempt, at the earliest.';
COMMENT ON COLUMN output_events.delivered_ref IS 'The receiver''s reference for it.';


-- The log of an episode: all that it did, in order; and as a text for people, as much of it as its
-- log strategy lets them see.

CREATE FUNCTION cause_line(value text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN split_part(
    ltrim(regexp_replace(value, '^(.*\n)?  File [^\n]*\n(  [^\n]*\n)*', ''), E' \n'), E'\n', 1
);
COMMENT ON FUNCTION cause_line(text) IS
    'The first line of a text or, where it is a traceback, of what was raised last.';

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
                WHEN 'episode' THEN format(
                    'call %s of episode %s', trigger_ref ->> 'call', trigger_ref ->> 'parent_id'
                )
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
            ': ', concat_ws(' ', kind, tool_name, CASE WHEN is_override THEN '(override)' END),
            CASE state WHEN 'announced' THEN 'begun, and its outcome is not recorded' END,
            error_class, cause_line(error_detail)
        ),
        NULL, NULL, cost_ms, error_class, error_detail,
        jsonb_strip_nulls(jsonb_build_object(
            'args', args_redacted, 'result', result, 'result_size_bytes', result_size_bytes,
            'result_digest', result_digest, 'model', model,
            'tokens', nullif(cost_tokens, 0), 'input_tokens', input_tokens,
            'output_tokens', output_tokens, 'cached_tokens', cached_tokens,
            'reasoning_tokens', reasoning_tokens, 'cost_usd', cost_usd::text, 'agent', agent,
            'idempotency_key', side_effect_key,
            'override', CASE WHEN is_override THEN true END
        )),
        journal_seq
    FROM episode_steps AS step
    -- An answer is shown as the end of what was waited for.
    WHERE kind NOT IN ('approval', 'wait') OR NOT EXISTS (
        SELECT FROM episode_blocks AS block
        WHERE (block.stack, block.episode_id, block.step_no)
            = (step.stack, step.episode_id, step.step_no)
            AND block.reason <> 'nondeterministic_replay'
    )
    UNION ALL
    SELECT
        stack, episode_id, blocked_at, 2, step_no * 3 + 1,
        CASE reason WHEN 'approval' THEN 'approval_requested' ELSE 'wait_started' END,
        step_no, ref,
        CASE
            WHEN reason = 'approval' THEN concat_ws(': ', 'asks for approval', summary)
            WHEN reason = 'nondeterministic_replay' THEN 'waits for other code: ' || summary
            WHEN ref <> '' THEN 'waits for ' || ref  -- guard: sleep-told-as-sleep
            WHEN expires_at IS NULL THEN 'waits for its children'
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
            WHEN block.reason = 'wait' AND block.ref = ''
            THEN 'goes on'
            WHEN block.resolution = 'retried' THEN 'other code is there'
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
            event.error_class, cause_line(event.error_detail), event.reason
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
        stack, episode_id, coalesce(finished_at, started_at), 3, number, 'would_raise', NULL,
        intent ->> 'finding_key',
        concat_ws(
            ': ',
            format(
                'would have %s %s',
                CASE intent ->> 'do'
                    WHEN 'raise' THEN 'raised' WHEN 'update' THEN 'updated' ELSE 'cleared'
                END,
                concat_ws(' ', intent ->> 'finding_key', '(' || (intent ->> 'severity') || ')')
            ),
            coalesce(intent ->> 'summary', intent ->> 'reason')
        ),
        NULL, NULL, NULL, NULL, NULL, intent, journal_seq
    FROM episodes, jsonb_array_elements(would_raise) WITH ORDINALITY AS left_out (intent, number)
    UNION ALL
    SELECT
        stack, episode_id, coalesce(finished_at, started_at), 3, 1000000 + number, 'would_send',
        NULL, intent ->> 'adapter',
        concat_ws(': ', 'would have sent ' || (intent ->> 'adapter'), intent ->> 'summary'),
        NULL, NULL, NULL, NULL, NULL, intent, journal_seq
    FROM episodes, jsonb_array_elements(would_send) WITH ORDINALITY AS left_out (intent, number)
    UNION ALL
    SELECT
        stack, episode_id, finished_at, 4, 0, 'episode_finished', NULL, NULL,
        concat_ws(': ', status, error_class, cause_line(error_detail), summary),
        NULL, node, wall_used_ms, error_class, error_detail,
        jsonb_strip_nulls(jsonb_build_object(
            'status', status, 'classification', classification, 'confidence', confidence,
            'turns', turns_used, 'tokens', tokens_used,
            'cost_usd', nullif(cost_usd, 0)::text, 'metadata', metadata
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
    'episode_opened, episode_started, episode_finished; the kind of a step, such as tool_call; approval_requested, approval_resolved, wait_started, wait_resolved; would_raise, would_send of a dry run; or the kind of a change of a finding or an output.';
COMMENT ON COLUMN episode_timeline.step_no IS
    'The step that it is, or that its answer is. NULL: it is about none.';
COMMENT ON COLUMN episode_timeline.name IS
    'The tool, the reference, or the key of the finding or output. NULL: none.';
COMMENT ON COLUMN episode_timeline.says IS 'What happened, in one line.';
COMMENT ON COLUMN episode_timeline.person IS 'Who did it. NULL: no person.';
COMMENT ON COLUMN episode_timeline.node IS
    'The node that did it. NULL: it is not recorded for this.';
COMMENT ON COLUMN episode_timeline.cost_ms IS
    'How long the step took, in milliseconds; of the end, all of them. NULL: it is neither.';
COMMENT ON COLUMN episode_timeline.error_class IS 'Why it failed: a stable class.';
COMMENT ON COLUMN episode_timeline.error_detail IS 'Why it failed, in words.';
COMMENT ON COLUMN episode_timeline.details IS
    'The rest of what is known: the trigger, arguments and result, the plan, evidence, …';
COMMENT ON COLUMN episode_timeline.journal_seq IS
    'Sequence of the commit that last changed its row, in the stream of what it is about.';


CREATE FUNCTION log_line(at timestamptz, says text, cost_ms bigint, more jsonb)
RETURNS text
LANGUAGE sql STABLE
RETURN concat(
    '- `', to_char(at AT TIME ZONE 'UTC', 'HH24:MI:SS'), '` ', says,
    CASE WHEN cost_ms > 0 THEN format(' (%s ms)', cost_ms) END,
    (
        SELECT string_agg(format(E'\n  - %s: `%s`', key, value), '' ORDER BY key)
        FROM jsonb_each(more)
    )
);
COMMENT ON FUNCTION log_line(timestamptz, text, bigint, jsonb) IS
    'A row of `episode_timeline` as Markdown; `more` is an object, one line for each of its values.';

CREATE VIEW episode_logs AS
SELECT
    stack, episode_id, log_strategy, 'markdown' AS format,
    CASE log_strategy
        WHEN 'summary_only'
        THEN concat_ws(': ', status, error_class, cause_line(error_detail), summary)
        ELSE (
            SELECT string_agg(
                log_line(
                    line.at, line.says, line.cost_ms,
                    CASE log_strategy WHEN 'full_debug' THEN line.details END
                ),
                E'\n' ORDER BY line.position
            )
            FROM episode_timeline AS line
            WHERE (line.stack, line.episode_id) = (episode.stack, episode.episode_id)
        )
    END AS content,
    -- Not turns_used: a call that is retried is one turn, however many steps it has.
    (
        SELECT coalesce(max(step_no), 0)
        FROM episode_steps AS step
        WHERE (step.stack, step.episode_id) = (episode.stack, episode.episode_id)
            AND step.state = 'recorded'
    ) AS last_step_no,
    journal_seq
FROM episodes AS episode
WHERE log_strategy <> 'none';
COMMENT ON VIEW episode_logs IS
    'What episodes did, as a text for people. Those whose log strategy is none are not there.';
COMMENT ON COLUMN episode_logs.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episode_logs.episode_id IS 'The episode.';
COMMENT ON COLUMN episode_logs.log_strategy IS
    'summary_only (one line: its status and summary), timeline (a line for each row of `episode_timeline`) or full_debug (with the details of each).';
COMMENT ON COLUMN episode_logs.format IS 'markdown.';
COMMENT ON COLUMN episode_logs.content IS 'The text. Times are in UTC.';
COMMENT ON COLUMN episode_logs.last_step_no IS 'How many steps it had taken.';
COMMENT ON COLUMN episode_logs.journal_seq IS
    'Sequence of the commit that last changed the row of the episode, in the journal or in its partition of it.';


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
    definition_revision bigint,
    budget_usd numeric,
    spent_usd numeric NOT NULL DEFAULT 0,
    stopping_at timestamptz,
    compensating_at timestamptz,
    PRIMARY KEY (stack, instance_id)
) WITH (fillfactor = 80);
COMMENT ON COLUMN workflow_instances.stopping_at IS
    'When it began to stop, as a step had failed or somebody canceled it. NULL: it did not.';
COMMENT ON COLUMN workflow_instances.compensating_at IS
    'When the first of its finished steps began to be undone. NULL: none was.';
COMMENT ON TABLE workflow_instances IS 'Instances of workflows, one row each.';
COMMENT ON COLUMN workflow_instances.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN workflow_instances.instance_id IS
    'Computed from its cause: the same cause is the same instance.';
COMMENT ON COLUMN workflow_instances.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN workflow_instances.workflow_id IS 'The workflow''s name.';
COMMENT ON COLUMN workflow_instances.status IS
    'running, stopping (running steps are being canceled), compensating (finished steps are being undone), or how it ended: done, failed, canceled. The view workflows also has blocked.';
COMMENT ON COLUMN workflow_instances.mode IS
    'live, or dry_run: a rehearsal without effects outside.';
COMMENT ON COLUMN workflow_instances.trigger_type IS
    'What started it: event, schedule, manual or workflow (it is a step of another one).';
COMMENT ON COLUMN workflow_instances.trigger_ref IS
    'The trigger in full; payload (of a workflow: input) is the payload of the event.';
COMMENT ON COLUMN workflow_instances.subject_value IS
    'What it is about. NULL: nothing in particular.';
COMMENT ON COLUMN workflow_instances.dedupe_key IS 'Triggers with the same key start one instance.';
COMMENT ON COLUMN workflow_instances.steps IS
    'Its steps in the order of their declaration: step_id, depends_on, and actor_id and expectation_id or workflow_id.';
COMMENT ON COLUMN workflow_instances.parent_instance_id IS
    'The instance that it is a step of. NULL: none.';
COMMENT ON COLUMN workflow_instances.parent_step_id IS 'The step of that instance. NULL: none.';
COMMENT ON COLUMN workflow_instances.depth IS 'Number of instances that it is nested in.';
COMMENT ON COLUMN workflow_instances.error_class IS 'Why it failed: a stable class.';
COMMENT ON COLUMN workflow_instances.error_detail IS 'Why it failed, in words.';
COMMENT ON COLUMN workflow_instances.failed_step IS
    'The step that made it fail. NULL: it did not fail, or took too long.';
COMMENT ON COLUMN workflow_instances.canceled_by IS 'Who canceled it. NULL: nobody.';
COMMENT ON COLUMN workflow_instances.cancel_reason IS 'Why, in words.';
COMMENT ON COLUMN workflow_instances.not_undone IS 'Steps that were done and could not be undone.';
COMMENT ON COLUMN workflow_instances.started_at IS 'When it started.';
COMMENT ON COLUMN workflow_instances.updated_at IS 'When it was last changed.';
COMMENT ON COLUMN workflow_instances.finished_at IS 'When it ended.';
COMMENT ON COLUMN workflow_instances.definition_revision IS
    'Revision of the definition that it was started under, and keeps. NULL: the workflow is declared in code.';
COMMENT ON COLUMN workflow_instances.budget_usd IS
    'Most that its requests to models may cost, in US dollars. NULL: any sum.';
COMMENT ON COLUMN workflow_instances.spent_usd IS
    'What its ended steps have spent, in US dollars, those of nested instances and compensation among them. A request of unknown cost counts as the most that it can be; an attempt that took too long as what was kept for it: without a budget, nothing.';

CREATE INDEX workflow_instances_by_time
    ON workflow_instances (stack, started_at DESC, instance_id DESC);
CREATE INDEX workflow_instances_open ON workflow_instances (stack, started_at DESC)
    WHERE finished_at IS NULL;
CREATE INDEX workflow_instances_by_parent ON workflow_instances (stack, parent_instance_id)
    WHERE parent_instance_id IS NOT NULL;
CREATE INDEX workflow_instances_ended
    ON workflow_instances (stack, workflow_id, status, finished_at, instance_id)
    WHERE finished_at IS NOT NULL;


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
    quorum bigint NOT NULL DEFAULT 1,
    barred text,
    approved_by text[] NOT NULL DEFAULT '{}',
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
    reused_episode_id uuid,
    edited_hash text,
    decided_at timestamptz,
    paused_at timestamptz,
    resumed_at timestamptz,
    placed_at timestamptz,
    begun_at timestamptz,
    compensation_begun_at timestamptz,
    compensation_ended_at timestamptz,
    PRIMARY KEY (stack, instance_id, step_id, item)
) WITH (fillfactor = 80);
COMMENT ON COLUMN workflow_steps.placed_at IS 'When it became known that there is this item.';
COMMENT ON COLUMN workflow_steps.begun_at IS 'When its first attempt began. NULL: none has.';
COMMENT ON COLUMN workflow_steps.compensation_begun_at IS
    'When it began to be undone. NULL: it did not.';
COMMENT ON COLUMN workflow_steps.compensation_ended_at IS
    'When that ended. NULL: it has not, or never began.';
COMMENT ON TABLE workflow_steps IS
    'Steps of instances of workflows: one row for each item of a step that fans out, and one for any other step.';
COMMENT ON COLUMN workflow_steps.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN workflow_steps.instance_id IS 'The instance that it is a step of.';
COMMENT ON COLUMN workflow_steps.step_id IS 'The step''s name.';
COMMENT ON COLUMN workflow_steps.item IS 'Number of the item, from 0.';
COMMENT ON COLUMN workflow_steps.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN workflow_steps.status IS
    'pending, awaiting_approval, running, failed (for good), retrying (later), paused (until a person decides), done, skipped or canceled.';
COMMENT ON COLUMN workflow_steps.attempts IS 'Attempts so far, the current one included.';
COMMENT ON COLUMN workflow_steps.episode_id IS
    'The episode of the newest attempt, or its instance if the step is another workflow. NULL: there was none.';
COMMENT ON COLUMN workflow_steps.input IS 'Its input. NULL: not known yet.';
COMMENT ON COLUMN workflow_steps.result IS 'Its result, for the steps that depend on it.';
COMMENT ON COLUMN workflow_steps.error_class IS
    'Why the newest attempt failed: a stable class. NULL: it did not, or is running.';
COMMENT ON COLUMN workflow_steps.error_detail IS 'Why the newest attempt failed, in words.';
COMMENT ON COLUMN workflow_steps.retry_at IS
    'Time of the next attempt, at the earliest. NULL: none is scheduled.';
COMMENT ON COLUMN workflow_steps.plan_hash IS
    'SHA-256 of what people were asked to approve, in hex; a decision names it. NULL: no approval.';
COMMENT ON COLUMN workflow_steps.summary IS 'The request in one sentence.';
COMMENT ON COLUMN workflow_steps.approvers IS 'Who may approve it, by name or as group:NAME; empty: anybody.';
COMMENT ON COLUMN workflow_steps.quorum IS 'How many different people have to approve it.';
COMMENT ON COLUMN workflow_steps.barred IS
    'Who may not decide, as the one who has asked for all of it. NULL: nobody is barred.';
COMMENT ON COLUMN workflow_steps.approved_by IS
    'Who has approved it so far, of those who have to; empty: nobody.';
COMMENT ON COLUMN workflow_steps.asked_at IS 'When approval was requested.';
COMMENT ON COLUMN workflow_steps.expires_at IS 'Until when it can be approved. NULL: no limit.';
COMMENT ON COLUMN workflow_steps.decided_by IS 'Who decided. NULL: nobody.';
COMMENT ON COLUMN workflow_steps.decided_reason IS 'Why, in words.';
COMMENT ON COLUMN workflow_steps.decided_at IS
    'When it was last decided, or the request ended with its instance. NULL: neither has happened.';
COMMENT ON COLUMN workflow_steps.paused_at IS
    'When it last failed and began to wait for a person. NULL: it never has.';
COMMENT ON COLUMN workflow_steps.resumed_at IS
    'When such a wait last ended: by a person, or with its instance. NULL: none has.';
COMMENT ON COLUMN workflow_steps.compensation_status IS
    'Status of the newest attempt to undo it: running, done, failed or canceled. NULL: there was none.';
COMMENT ON COLUMN workflow_steps.compensation_episode_id IS 'The episode of that attempt.';
COMMENT ON COLUMN workflow_steps.started_at IS 'When the newest attempt started.';
COMMENT ON COLUMN workflow_steps.finished_at IS 'When that ended.';
COMMENT ON COLUMN workflow_steps.reused_episode_id IS
    'The earlier episode whose result is reused for this item. NULL: none.';
COMMENT ON COLUMN workflow_steps.edited_hash IS
    'SHA-256 of the changed inputs that were approved, in hex; in the row of the first item. NULL: they were not changed.';

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
    instance.journal_seq, instance.budget_usd, instance.spent_usd
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
COMMENT ON VIEW workflows IS 'Instances of workflows, and their progress.';
COMMENT ON COLUMN workflows.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN workflows.instance_id IS
    'Computed from its cause: the same cause is the same instance.';
COMMENT ON COLUMN workflows.workflow_id IS 'The workflow''s name.';
COMMENT ON COLUMN workflows.status IS
    'running, blocked (it cannot continue before a person decides), stopping, compensating, or how it ended: done, failed, canceled.';
COMMENT ON COLUMN workflows.mode IS 'live, or dry_run: a rehearsal without effects outside.';
COMMENT ON COLUMN workflows.subject_value IS 'What it is about. NULL: nothing in particular.';
COMMENT ON COLUMN workflows.items IS 'Items of its steps, as far as they are known.';
COMMENT ON COLUMN workflows.done IS 'How many of them are done, or were skipped.';
COMMENT ON COLUMN workflows.running IS 'How many run, or will be tried again.';
COMMENT ON COLUMN workflows.waiting IS 'How many wait for people.';
COMMENT ON COLUMN workflows.parent_instance_id IS 'The instance that it is a step of. NULL: none.';
COMMENT ON COLUMN workflows.error_class IS 'Why it failed: a stable class.';
COMMENT ON COLUMN workflows.error_detail IS 'Why it failed, in words.';
COMMENT ON COLUMN workflows.failed_step IS
    'The step that made it fail. NULL: it did not fail, or took too long.';
COMMENT ON COLUMN workflows.started_at IS 'When it started.';
COMMENT ON COLUMN workflows.updated_at IS 'When it was last changed.';
COMMENT ON COLUMN workflows.finished_at IS 'When it ended.';
COMMENT ON COLUMN workflows.journal_seq IS
    'Sequence of the commit that last changed it, in the journal or in its partition of it.';
COMMENT ON COLUMN workflows.budget_usd IS
    'Most that its requests to models may cost, in US dollars. NULL: any sum.';
COMMENT ON COLUMN workflows.spent_usd IS 'What its ended steps have spent, in US dollars.';


-- Definitions: actors and workflows that are data, as they stand, and how they came to that.

CREATE TABLE agent_definitions (
    stack text NOT NULL,
    actor_id text NOT NULL,
    journal_seq bigint NOT NULL,
    revision bigint NOT NULL,
    is_enabled boolean NOT NULL GENERATED ALWAYS AS (disabled_at IS NULL) STORED,
    domain text NOT NULL,
    spec_rev text,
    expectations text[] NOT NULL,
    definition jsonb,
    applied_at timestamptz NOT NULL,
    applied_by text NOT NULL,
    applied_reason text,
    first_applied_at timestamptz NOT NULL,
    disabled_at timestamptz,
    disabled_by text,
    disabled_reason text,
    PRIMARY KEY (stack, actor_id)
) WITH (fillfactor = 80);
COMMENT ON TABLE agent_definitions IS
    'Actors that are defined as data, as they were last applied. One row each.';
COMMENT ON COLUMN agent_definitions.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN agent_definitions.actor_id IS 'The actor that is defined.';
COMMENT ON COLUMN agent_definitions.journal_seq IS
    'Sequence of the commit that last changed the row, in the state or in its partition of it.';
COMMENT ON COLUMN agent_definitions.revision IS
    'From 1; grows each time another definition is applied.';
COMMENT ON COLUMN agent_definitions.is_enabled IS
    'Whether it is in effect. false: it was disabled.';
COMMENT ON COLUMN agent_definitions.domain IS 'Its label, for people.';
COMMENT ON COLUMN agent_definitions.spec_rev IS 'The spec_rev that it declares. NULL: none.';
COMMENT ON COLUMN agent_definitions.expectations IS 'The names of its expectations.';
COMMENT ON COLUMN agent_definitions.definition IS
    'The definition in full; default values are omitted.';
COMMENT ON COLUMN agent_definitions.applied_at IS 'When this revision was applied.';
COMMENT ON COLUMN agent_definitions.applied_by IS 'Who applied it.';
COMMENT ON COLUMN agent_definitions.applied_reason IS 'Why, in words.';
COMMENT ON COLUMN agent_definitions.first_applied_at IS 'When its first revision was applied.';
COMMENT ON COLUMN agent_definitions.disabled_at IS 'When it was disabled. NULL: it is enabled.';
COMMENT ON COLUMN agent_definitions.disabled_by IS 'Who disabled it. NULL: it is enabled.';
COMMENT ON COLUMN agent_definitions.disabled_reason IS 'Why, in words.';


CREATE TABLE workflow_definitions (
    stack text NOT NULL,
    workflow_id text NOT NULL,
    journal_seq bigint NOT NULL,
    revision bigint NOT NULL,
    is_enabled boolean NOT NULL GENERATED ALWAYS AS (disabled_at IS NULL) STORED,
    triggers jsonb,
    subject_key text,
    steps text[] NOT NULL,
    definition jsonb,
    applied_at timestamptz NOT NULL,
    applied_by text NOT NULL,
    applied_reason text,
    first_applied_at timestamptz NOT NULL,
    disabled_at timestamptz,
    disabled_by text,
    disabled_reason text,
    PRIMARY KEY (stack, workflow_id)
) WITH (fillfactor = 80);
COMMENT ON TABLE workflow_definitions IS
    'Workflows that are defined as data, as they were last applied. One row each.';
COMMENT ON COLUMN workflow_definitions.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN workflow_definitions.workflow_id IS 'The workflow''s name.';
COMMENT ON COLUMN workflow_definitions.journal_seq IS
    'Sequence of the commit that last changed the row, in the state or in its partition of it.';
COMMENT ON COLUMN workflow_definitions.revision IS
    'From 1; grows each time another definition is applied.';
COMMENT ON COLUMN workflow_definitions.is_enabled IS
    'Whether it is in effect. false: it was disabled.';
COMMENT ON COLUMN workflow_definitions.triggers IS 'What starts it. NULL: only people do.';
COMMENT ON COLUMN workflow_definitions.subject_key IS
    'Path to the subject in the payload of its trigger. NULL: none.';
COMMENT ON COLUMN workflow_definitions.steps IS
    'The names of its steps, in the order of their declaration.';
COMMENT ON COLUMN workflow_definitions.definition IS
    'The definition in full; default values are omitted.';
COMMENT ON COLUMN workflow_definitions.applied_at IS 'When this revision was applied.';
COMMENT ON COLUMN workflow_definitions.applied_by IS 'Who applied it.';
COMMENT ON COLUMN workflow_definitions.applied_reason IS 'Why, in words.';
COMMENT ON COLUMN workflow_definitions.first_applied_at IS 'When its first revision was applied.';
COMMENT ON COLUMN workflow_definitions.disabled_at IS 'When it was disabled. NULL: it is enabled.';
COMMENT ON COLUMN workflow_definitions.disabled_by IS 'Who disabled it. NULL: it is enabled.';
COMMENT ON COLUMN workflow_definitions.disabled_reason IS 'Why, in words.';


CREATE TABLE definition_history (
    stack text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('agent', 'workflow')),
    definition_id text NOT NULL,
    journal_seq bigint NOT NULL,
    event_no bigint NOT NULL,
    change text NOT NULL CHECK (change IN ('applied', 'disabled')),
    revision bigint NOT NULL,
    definition jsonb,
    at timestamptz NOT NULL,
    person text NOT NULL,
    reason text,
    PRIMARY KEY (stack, kind, definition_id, journal_seq, event_no)
);
COMMENT ON TABLE definition_history IS
    'The history of definitions, in order: every revision that was ever applied, in full.';
COMMENT ON COLUMN definition_history.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN definition_history.kind IS 'What is defined: agent or workflow.';
COMMENT ON COLUMN definition_history.definition_id IS 'The actor''s id, or the workflow''s name.';
COMMENT ON COLUMN definition_history.journal_seq IS
    'Sequence of its commit, in the state or in its partition of it.';
COMMENT ON COLUMN definition_history.event_no IS 'Position within that commit, from 0.';
COMMENT ON COLUMN definition_history.change IS 'applied or disabled.';
COMMENT ON COLUMN definition_history.revision IS
    'The revision that was applied, or that was in effect when it was disabled.';
COMMENT ON COLUMN definition_history.definition IS
    'The applied definition in full. NULL: it was disabled.';
COMMENT ON COLUMN definition_history.at IS 'When it happened.';
COMMENT ON COLUMN definition_history.person IS 'Who did it.';
COMMENT ON COLUMN definition_history.reason IS 'Why, in words.';


-- What people order of a running stack.

CREATE TABLE orders (
    stack text NOT NULL,
    order_key text NOT NULL,
    journal_seq bigint NOT NULL,
    event_no bigint NOT NULL,
    change text NOT NULL CHECK (change IN (
        'mode_set', 'mode_unset', 'actor_paused', 'actor_resumed', 'breaker_reset', 'layout_set',
        'login_required', 'login_waived', 'retention_declared', 'rows_cut', 'hold_added',
        'hold_removed', 'kinds_encrypted', 'subject_erased'
    )),
    node text,
    actor_id text,
    expectation_id text,
    mode text CHECK (mode IN ('full', 'trigger_only', 'disabled')),
    partitions bigint,
    at timestamptz NOT NULL,
    person text NOT NULL,
    reason text,
    PRIMARY KEY (stack, order_key, journal_seq, event_no)
);
CREATE INDEX orders_latest ON orders (stack, at DESC);
COMMENT ON TABLE orders IS
    'What people ordered of a running stack, in order: modes, pauses, resets of circuit breakers, layouts, logins, retention.';
COMMENT ON COLUMN orders.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN orders.order_key IS
    'What it is about: mode.NODE, pause.ACTOR, breaker.ACTOR.EXPECTATION, layout, login, retention, retention.ACTOR, cuts, hold.KIND.HELD, encrypted, or erased.SUBJECT.';
COMMENT ON COLUMN orders.journal_seq IS
    'Sequence of its commit, in the state or in its partition of it.';
COMMENT ON COLUMN orders.event_no IS 'Position within that commit, from 0.';
COMMENT ON COLUMN orders.change IS
    'mode_set, mode_unset, actor_paused, actor_resumed, breaker_reset, layout_set, login_required, login_waived, retention_declared, rows_cut, hold_added, hold_removed, kinds_encrypted or subject_erased.';
COMMENT ON COLUMN orders.node IS 'The node that it is about. NULL: none.';
COMMENT ON COLUMN orders.actor_id IS
    'The actor that it is about. NULL: none, or every actor of the node.';
COMMENT ON COLUMN orders.expectation_id IS
    'The expectation whose circuit breaker was reset. NULL: none was.';
COMMENT ON COLUMN orders.mode IS 'The mode of the node from then on. NULL: none was set.';
COMMENT ON COLUMN orders.partitions IS
    'The number of partitions from then on. NULL: it is not about the layout.';
COMMENT ON COLUMN orders.at IS 'When it was given.';
COMMENT ON COLUMN orders.person IS 'Who gave it.';
COMMENT ON COLUMN orders.reason IS 'Why, in words.';


-- What leaves the tables, and what people hold. The projector deletes by these two.

CREATE TABLE retention_cuts (
    stack text NOT NULL,
    what text NOT NULL CHECK (what IN ('done', 'failed', 'findings', 'outputs', 'dead_letters')),
    actor_id text NOT NULL,
    journal_seq bigint NOT NULL,
    before timestamptz NOT NULL,
    PRIMARY KEY (stack, what, actor_id)
);
COMMENT ON TABLE retention_cuts IS
    'What has left the tables: rows of what ended before these times. Those that are held are there all the same, and some may be there until they are deleted.';
COMMENT ON COLUMN retention_cuts.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN retention_cuts.what IS
    'done: episodes and instances that were done or canceled. failed: those that failed, at least in part. findings: raises that are over. outputs: those that are settled. dead_letters: those that were requeued or discarded.';
COMMENT ON COLUMN retention_cuts.actor_id IS
    'Whose. Empty: of every actor that has no time of its own.';
COMMENT ON COLUMN retention_cuts.journal_seq IS
    'Sequence of its commit, in the state or in its partition of it.';
COMMENT ON COLUMN retention_cuts.before IS 'What ended before this time has left.';


CREATE TABLE retention_holds (
    stack text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('subject', 'actor', 'episode')),
    held text NOT NULL,
    journal_seq bigint NOT NULL,
    is_held boolean NOT NULL,
    at timestamptz NOT NULL,
    person text NOT NULL,
    reason text,
    PRIMARY KEY (stack, kind, held)
);
COMMENT ON TABLE retention_holds IS 'What people hold, or have held: nothing of it leaves the tables.';
COMMENT ON COLUMN retention_holds.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN retention_holds.kind IS
    'subject: all episodes and findings about it, and what came of them. actor: all of its. episode: that one, and what came of it.';
COMMENT ON COLUMN retention_holds.held IS 'The id of the subject, the actor or the episode.';
COMMENT ON COLUMN retention_holds.journal_seq IS
    'Sequence of the commit that last changed the row, in the state or in its partition of it.';
COMMENT ON COLUMN retention_holds.is_held IS 'Whether it is held now. false: it was.';
COMMENT ON COLUMN retention_holds.at IS 'When people last held it, or let go of it.';
COMMENT ON COLUMN retention_holds.person IS 'Who did.';
COMMENT ON COLUMN retention_holds.reason IS 'Why, in words.';


-- Who may use a stack. No row has a secret or the hash of one.

CREATE TABLE people (
    stack text NOT NULL,
    name text NOT NULL,
    journal_seq bigint NOT NULL,
    role text NOT NULL CHECK (role IN ('viewer', 'approver', 'operator', 'admin')),
    groups text[] NOT NULL,
    has_password boolean NOT NULL,
    issuer text,
    subject text,
    added_at timestamptz NOT NULL,
    added_by text NOT NULL,
    removed_at timestamptz,
    removed_by text,
    PRIMARY KEY (stack, name)
);
COMMENT ON TABLE people IS
    'Who may sign in to a stack, and who might once. One row for each name.';
COMMENT ON COLUMN people.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN people.name IS 'The name, which the journal has as the one who ordered something.';
COMMENT ON COLUMN people.journal_seq IS
    'Sequence of the commit that last changed the row, in the state or in its partition of it.';
COMMENT ON COLUMN people.role IS
    'What the person may do: viewer, approver, operator or admin; each may do what those before it may.';
COMMENT ON COLUMN people.groups IS 'The groups that approvals may name.';
COMMENT ON COLUMN people.has_password IS 'Whether there is a password to sign in with.';
COMMENT ON COLUMN people.issuer IS
    'The provider of OpenID Connect that the person has signed in with. NULL: with none yet.';
COMMENT ON COLUMN people.subject IS
    'What that provider calls the person for ever. NULL: as for issuer.';
COMMENT ON COLUMN people.added_at IS 'When the person was added, the last time.';
COMMENT ON COLUMN people.added_by IS 'Who did that.';
COMMENT ON COLUMN people.removed_at IS
    'When the person was removed. NULL: the person may use the stack.';
COMMENT ON COLUMN people.removed_by IS 'Who did that. NULL: as for removed_at.';


CREATE TABLE tokens (
    stack text NOT NULL,
    token_id text NOT NULL,
    journal_seq bigint NOT NULL,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('viewer', 'approver', 'operator', 'admin')),
    scopes text[],
    is_agent boolean NOT NULL,
    owner text,
    issued_at timestamptz NOT NULL,
    issued_by text NOT NULL,
    issued_reason text,
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    revoked_by text,
    revoked_reason text,
    PRIMARY KEY (stack, token_id)
);
CREATE INDEX tokens_latest ON tokens (stack, issued_at DESC);
COMMENT ON TABLE tokens IS 'Tokens with which programs use a stack. One row each.';
COMMENT ON COLUMN tokens.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN tokens.token_id IS 'Its id, which the text of the token begins with after vt_.';
COMMENT ON COLUMN tokens.journal_seq IS
    'Sequence of the commit that last changed the row, in the state or in its partition of it.';
COMMENT ON COLUMN tokens.name IS
    'What the program is called; the journal has it behind token: as the one who ordered something.';
COMMENT ON COLUMN tokens.role IS
    'What it may do at most: viewer, approver, operator or admin; never more than its owner.';
COMMENT ON COLUMN tokens.scopes IS 'What it is for. NULL: all that its role may.';
COMMENT ON COLUMN tokens.is_agent IS 'Whether a model decides what is done with it.';
COMMENT ON COLUMN tokens.owner IS
    'The person that answers for it: it ends when that one is removed. NULL: nobody among the people.';
COMMENT ON COLUMN tokens.issued_at IS 'When it was issued.';
COMMENT ON COLUMN tokens.issued_by IS 'Who issued it.';
COMMENT ON COLUMN tokens.issued_reason IS 'Why, in words.';
COMMENT ON COLUMN tokens.expires_at IS 'From when on it is good no longer.';
COMMENT ON COLUMN tokens.revoked_at IS 'When it was revoked. NULL: it was not.';
COMMENT ON COLUMN tokens.revoked_by IS 'Who revoked it. NULL: it was not.';
COMMENT ON COLUMN tokens.revoked_reason IS 'Why, in words.';


CREATE TABLE audit (
    stack text NOT NULL,
    person_key text NOT NULL,
    journal_seq bigint NOT NULL,
    event_no bigint NOT NULL,
    change text NOT NULL CHECK (change IN (
        'added', 'removed', 'role_set', 'groups_set', 'password_set', 'identity_linked',
        'session_begun', 'session_ended', 'sign_in_refused',
        'token_issued', 'token_revoked', 'link_issued', 'link_used'
    )),
    at timestamptz NOT NULL,
    person text NOT NULL,
    name text NOT NULL,
    reason text,
    role text,
    groups text[],
    token_id text,
    session_id text,
    way text CHECK (way IN ('password', 'link', 'oidc')),
    address text,
    agent text,
    PRIMARY KEY (stack, person_key, journal_seq, event_no)
);
CREATE INDEX audit_latest ON audit (stack, at DESC);
COMMENT ON TABLE audit IS
    'Who has signed in, who was refused, and who has changed what about people and tokens, in order.';
COMMENT ON COLUMN audit.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN audit.person_key IS
    'What it is about: people, login.NAME, token.ID or link.ID.';
COMMENT ON COLUMN audit.journal_seq IS
    'Sequence of its commit, in the state or in its partition of it.';
COMMENT ON COLUMN audit.event_no IS 'Position within that commit, from 0.';
COMMENT ON COLUMN audit.change IS
    'added, removed, role_set, groups_set, password_set, identity_linked; session_begun, session_ended, sign_in_refused; token_issued, token_revoked; link_issued or link_used.';
COMMENT ON COLUMN audit.at IS 'When it happened.';
COMMENT ON COLUMN audit.person IS
    'Who did it; of a sign-in that was refused, the name that was given.';
COMMENT ON COLUMN audit.name IS 'The person or the program that it is about.';
COMMENT ON COLUMN audit.reason IS 'Why, in words.';
COMMENT ON COLUMN audit.role IS 'The role from then on. NULL: it is not about one.';
COMMENT ON COLUMN audit.groups IS 'The groups from then on. NULL: it is not about them.';
COMMENT ON COLUMN audit.token_id IS 'The token or the link. NULL: it is about none.';
COMMENT ON COLUMN audit.session_id IS 'The session. NULL: it is about none.';
COMMENT ON COLUMN audit.way IS
    'How the person has signed in: password, link or oidc. NULL: nobody has with this.';
COMMENT ON COLUMN audit.address IS 'From where. NULL: nobody knows.';
COMMENT ON COLUMN audit.agent IS
    'The program that was used there, as it calls itself, shortened. NULL: nobody knows.';


-- The inbox: what waits for people, or for word from outside.

CREATE TABLE dead_letters (
    stack text NOT NULL,
    letter_key text NOT NULL,
    journal_seq bigint NOT NULL,
    reason text NOT NULL,
    detail text NOT NULL,
    source_stream text NOT NULL,
    source_seq bigint NOT NULL,
    source_subject text NOT NULL,
    actor_id text,
    episode_id uuid,
    headers jsonb NOT NULL,
    payload bytea NOT NULL,
    payload_size_bytes bigint NOT NULL,
    lettered_at timestamptz NOT NULL,
    status text NOT NULL CHECK (status IN ('waiting', 'requeued', 'discarded')),
    settled_at timestamptz,
    settled_by text,
    settled_note text,
    output_key text,
    PRIMARY KEY (stack, letter_key)
);
COMMENT ON TABLE dead_letters IS
    'Messages, episodes and outputs that could not be processed, with the reason, until a person decides.';
COMMENT ON COLUMN dead_letters.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN dead_letters.letter_key IS 'Its identity: source and cause.';
COMMENT ON COLUMN dead_letters.journal_seq IS
    'Sequence, in the stream of dead letters, of the commit that last changed the row.';
COMMENT ON COLUMN dead_letters.reason IS 'Why it was rejected: a stable class.';
COMMENT ON COLUMN dead_letters.detail IS 'Why it was rejected, in words.';
COMMENT ON COLUMN dead_letters.source_stream IS 'The stream of the rejected message.';
COMMENT ON COLUMN dead_letters.source_seq IS 'Its sequence there.';
COMMENT ON COLUMN dead_letters.source_subject IS 'Its subject.';
COMMENT ON COLUMN dead_letters.actor_id IS 'The actor whose message it is.';
COMMENT ON COLUMN dead_letters.episode_id IS 'The episode that failed, if it is about one.';
COMMENT ON COLUMN dead_letters.headers IS 'Its headers.';
COMMENT ON COLUMN dead_letters.payload IS 'The original message, truncated if it is very long.';
COMMENT ON COLUMN dead_letters.payload_size_bytes IS 'Its full size, in bytes.';
COMMENT ON COLUMN dead_letters.lettered_at IS 'When it was rejected.';
COMMENT ON COLUMN dead_letters.status IS
    'waiting for a person, requeued (tried again) or discarded.';
COMMENT ON COLUMN dead_letters.settled_at IS 'When a person decided.';
COMMENT ON COLUMN dead_letters.settled_by IS
    'Who decided: a person, or the actor whose episode has proposed the output again.';
COMMENT ON COLUMN dead_letters.settled_note IS
    'The event''s sequence or the episode that it was requeued as; or why it was discarded.';
COMMENT ON COLUMN dead_letters.output_key IS
    'The output that failed. NULL: it is about something else.';

CREATE INDEX dead_letters_by_time ON dead_letters (stack, lettered_at DESC);
-- The few that wait for somebody, among however many there are.
CREATE INDEX dead_letters_waiting ON dead_letters (stack, lettered_at) WHERE status = 'waiting';
CREATE INDEX dead_letters_settled ON dead_letters (stack, settled_at, letter_key)
    WHERE status <> 'waiting';


CREATE VIEW approvals AS
SELECT
    block.stack, 'episode' AS kind, block.episode_id::text AS id, block.episode_id, block.step_no,
    episode.actor_id, episode.expectation_id, block.summary, block.plan, block.plan_hash,
    block.approvers, block.blocked_at AS requested_at, block.expires_at, block.on_expiry,
    CASE
        WHEN block.resolution IS NOT NULL THEN block.resolution
        WHEN episode.finished_at IS NOT NULL THEN 'canceled'
        ELSE 'pending'
    END AS state,
    block.resolved_by AS decided_by, block.resolved_reason AS decided_reason,
    block.resolved_at AS decided_at, block.journal_seq, block.edited_hash, block.quorum,
    block.barred, block.approved_by
FROM episode_blocks AS block
JOIN episodes AS episode USING (stack, episode_id)
WHERE block.reason = 'approval'
UNION ALL
SELECT
    stack, 'output', output_key, episode_id, NULL, actor_id, expectation_id, summary,
    payload, payload_hash, approvers, asked_at, expires_at, on_expiry,
    CASE
        WHEN resolution IS NOT NULL THEN resolution
        WHEN status = 'canceled' THEN 'canceled'
        ELSE 'pending'
    END,
    decided_by, decided_reason, decided_at, journal_seq, edited_hash, quorum, barred, approved_by
FROM outputs
WHERE payload_hash IS NOT NULL;
COMMENT ON VIEW approvals IS
    'Requests for approval, of episodes and of outputs, and their decisions.';
COMMENT ON COLUMN approvals.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN approvals.kind IS
    'episode (approval of its next step) or output (approval of a delivery).';
COMMENT ON COLUMN approvals.id IS 'The id of the episode, or the key of the output.';
COMMENT ON COLUMN approvals.episode_id IS 'The episode that asks, or that proposed the output.';
COMMENT ON COLUMN approvals.step_no IS
    'The step of the episode whose result is the answer. NULL for an output.';
COMMENT ON COLUMN approvals.actor_id IS 'The actor whose episode it is.';
COMMENT ON COLUMN approvals.expectation_id IS 'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN approvals.summary IS 'The request in one sentence.';
COMMENT ON COLUMN approvals.plan IS
    'What is to be done or delivered: of an episode the plan in the request, of an output the payload with its changes.';
COMMENT ON COLUMN approvals.plan_hash IS
    'SHA-256 of the plan in the request, in hex; a decision names it.';
COMMENT ON COLUMN approvals.approvers IS
    'Who may decide, by name or as group:NAME; empty: anybody.';
COMMENT ON COLUMN approvals.requested_at IS 'When approval was last requested.';
COMMENT ON COLUMN approvals.expires_at IS 'Until when it can be decided. NULL: no limit.';
COMMENT ON COLUMN approvals.on_expiry IS
    'What happens if nobody decides in time: deny, approve or fail.';
COMMENT ON COLUMN approvals.state IS
    'pending, approved, denied, expired (nobody decided in time), superseded (approved for an older episode with an equal request, which acts) or canceled (with its episode, or an output alone).';
COMMENT ON COLUMN approvals.decided_by IS 'Who decided. NULL: nobody.';
COMMENT ON COLUMN approvals.decided_reason IS 'Why, in words.';
COMMENT ON COLUMN approvals.decided_at IS 'When it was decided.';
COMMENT ON COLUMN approvals.journal_seq IS
    'Sequence of the commit that last changed it, in the journal or in its partition of it.';
COMMENT ON COLUMN approvals.edited_hash IS
    'SHA-256 of the changed plan or payload that was approved, in hex. NULL: it was approved without changes or not at all.';
COMMENT ON COLUMN approvals.quorum IS 'How many different people have to approve it.';
COMMENT ON COLUMN approvals.barred IS
    'Who may not decide, as the one who has asked for all of it. NULL: nobody is barred.';
COMMENT ON COLUMN approvals.approved_by IS
    'Who has approved it so far, of those who have to; empty: nobody.';


CREATE VIEW waits AS
SELECT
    block.stack, block.episode_id, block.step_no, episode.actor_id, episode.expectation_id,
    block.ref, block.blocked_at AS since, block.expires_at, block.on_expiry,
    CASE
        WHEN block.resolution IS NOT NULL THEN block.resolution
        WHEN episode.finished_at IS NOT NULL THEN 'canceled'
        ELSE 'pending'
    END AS state,
    block.resolved_by, block.resolved_at, block.journal_seq
FROM episode_blocks AS block
JOIN episodes AS episode USING (stack, episode_id)
WHERE block.reason = 'wait';
COMMENT ON VIEW waits IS
    'What episodes waited for from other systems, and whether the event has come.';
COMMENT ON COLUMN waits.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN waits.episode_id IS 'The episode that waits.';
COMMENT ON COLUMN waits.step_no IS 'The step of the episode whose result is the answer.';
COMMENT ON COLUMN waits.actor_id IS 'The actor whose episode it is.';
COMMENT ON COLUMN waits.expectation_id IS 'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN waits.ref IS 'The reference that is waited for.';
COMMENT ON COLUMN waits.since IS 'When it started waiting.';
COMMENT ON COLUMN waits.expires_at IS 'Until when it waits. NULL: no limit.';
COMMENT ON COLUMN waits.on_expiry IS 'What happens if no event comes in time: continue or fail.';
COMMENT ON COLUMN waits.state IS
    'pending, resolved (the event has come), expired (no event came in time) or canceled (with its episode).';
COMMENT ON COLUMN waits.resolved_by IS 'Who published the event. NULL: nobody.';
COMMENT ON COLUMN waits.resolved_at IS 'When it ended.';
COMMENT ON COLUMN waits.journal_seq IS
    'Sequence of the commit that last changed it, in the journal or in its partition of it.';


-- Keys and references may come from events of anybody: what is typed must not be more than a word.

CREATE FUNCTION shell_word(value text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN value LIKE '-%' THEN '-- ' ELSE '' END || CASE
    WHEN value ~ '^[A-Za-z0-9_.:/@%+=,-]+$' THEN value
    ELSE '''' || replace(value, '''', '''\''''') || ''''  -- guard: key-is-one-word
END;
COMMENT ON FUNCTION shell_word(text) IS
    'The text as the last word of a command line, and never one of its options.';

-- Equal requests for approval about one subject are one request: the inbox shows the oldest of
-- them, the number of episodes, and the subject.
CREATE VIEW inbox AS
SELECT
    stack, kind, id, actor_id, expectation_id, summary, since, expires_at, what_to_do, journal_seq,
    CASE WHEN kind <> 'approval' THEN NULL WHEN request IS NULL THEN 1 ELSE equals END AS episodes,
    subject_kind, subject_id, NULL::bigint AS item
FROM (
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
            WHEN 'nondeterministic_replay'
                THEN format('vigil episodes show %s', block.episode_id)
            ELSE format('vigil episodes approve %s', block.episode_id)
        END AS what_to_do,
        block.journal_seq, block.request, episode.subject_kind, episode.subject_id,
        row_number() OVER equal AS place, count(*) OVER equal AS equals
    FROM episodes AS episode
    JOIN episode_blocks AS block USING (stack, episode_id)
    -- guard: ended-request-waits-for-nobody
    WHERE episode.blocked_by IN ('approval', 'wait', 'nondeterministic_replay') AND
        block.resolution IS NULL
    WINDOW equal AS (
        PARTITION BY block.stack, block.request
        ORDER BY block.blocked_at, block.episode_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
) AS asking
WHERE request IS NULL OR place = 1  -- guard: people-see-one-request
UNION ALL
SELECT
    output.stack, 'output', output.output_key, output.actor_id, output.expectation_id,
    coalesce(output.summary, left(output.payload::text, 200)), output.asked_at, output.expires_at,
    format('vigil outputs approve %s', shell_word(output.output_key)), output.journal_seq, NULL,
    episode.subject_kind, episode.subject_id,  -- guard: inbox-names-subject
    NULL
FROM outputs AS output
LEFT JOIN episodes AS episode USING (stack, episode_id)
WHERE output.status = 'awaiting_approval'
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
        -- Whoever would try it again is refused.
        WHEN output.status <> 'failed' THEN  -- guard: gone-on-letter-not-retried
            'vigil dead discard --reason ''its output has gone on'' '
            || shell_word(letter.letter_key)
        ELSE 'vigil outputs retry ' || shell_word(letter.output_key)
    END,
    letter.journal_seq, NULL, episode.subject_kind, episode.subject_id, NULL
FROM dead_letters AS letter
LEFT JOIN episodes AS episode USING (stack, episode_id)
LEFT JOIN outputs AS output USING (stack, output_key)
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
    step.journal_seq, NULL, NULL, instance.subject_value, step.item
FROM workflow_steps AS step
JOIN workflow_instances AS instance USING (stack, instance_id)
WHERE step.status IN ('awaiting_approval', 'paused')
ORDER BY since;
COMMENT ON VIEW inbox IS 'What waits for a person now, the oldest first, and the command to type.';
COMMENT ON COLUMN inbox.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN inbox.kind IS
    'approval (of an episode), output (to be approved), wait (for an event from another system), workflow_step (to be approved, or failed and paused) or dead_letter.';
COMMENT ON COLUMN inbox.id IS
    'The id of the episode that asks or waits, or of the instance, or the key of the output or of the dead letter.';
COMMENT ON COLUMN inbox.actor_id IS 'The actor that it is about, if any.';
COMMENT ON COLUMN inbox.expectation_id IS
    'The expectation whose episode waits, if there is an episode; for a workflow, the step.';
COMMENT ON COLUMN inbox.summary IS 'What it is about, in words.';
COMMENT ON COLUMN inbox.since IS 'When it started waiting.';
COMMENT ON COLUMN inbox.expires_at IS 'Until when it can be answered. NULL: no limit.';
COMMENT ON COLUMN inbox.what_to_do IS
    'The command to type. To refuse, replace `approve` by `deny` (episode, step) or `reject` (output); to skip a step, replace `--retry` by `--skip`.';
COMMENT ON COLUMN inbox.journal_seq IS
    'Sequence of the commit that last changed it, in the journal or the stream of dead letters.';
COMMENT ON COLUMN inbox.episodes IS
    'Of an approval of an episode: the number of equal requests, which one decision answers. NULL: of all other kinds.';
COMMENT ON COLUMN inbox.subject_kind IS
    'The subject key of the expectation. NULL: it has none, or it is a step of a workflow.';
COMMENT ON COLUMN inbox.subject_id IS 'The subject. NULL: it has none.';
COMMENT ON COLUMN inbox.item IS
    'Of a step of a workflow: which item of it, from 0. NULL: of all other kinds.';


-- The past: rows as they were at a time, of the times that rows keep.

CREATE FUNCTION episodes_at(in_stack text, at timestamptz, statuses text[] DEFAULT NULL)
RETURNS TABLE (
    episode_id uuid, actor_id text, expectation_id text, status text, subject_kind text,
    subject_id text, attempts bigint, turns_used bigint, tokens_used bigint, cost_usd numeric,
    wall_used_ms bigint, model text, agent text, confidence double precision, summary text,
    error_class text, error_detail text, node text, mode text, metadata jsonb, workflow_id text,
    workflow_instance_id uuid, workflow_step_id text, queued_at timestamptz,
    started_at timestamptz, finished_at timestamptz, forked_from uuid, blocked_by text,
    journal_seq bigint, blocked_ref text, blocked_until timestamptz
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        episode.episode_id, episode.actor_id, episode.expectation_id, then_.status,
        episode.subject_kind, episode.subject_id,
        CASE
            WHEN again.attempt IS NOT NULL THEN again.attempt
            ELSE (then_.ran_at IS NOT NULL)::int::bigint
        END,
        -- guard: past-never-guessed
        CASE WHEN then_.is_over THEN episode.turns_used WHEN then_.is_new THEN 0 END,
        CASE WHEN then_.is_over THEN episode.tokens_used WHEN then_.is_new THEN 0 END,
        CASE WHEN then_.is_over THEN episode.cost_usd WHEN then_.is_new THEN 0 END,
        CASE WHEN then_.is_over THEN episode.wall_used_ms WHEN then_.is_new THEN 0 END,
        CASE WHEN then_.is_over THEN episode.model END,
        CASE WHEN then_.is_over THEN episode.agent END,
        CASE WHEN then_.is_over OR then_.is_deferred THEN episode.confidence END,
        CASE WHEN then_.is_over OR then_.is_deferred THEN episode.summary END,
        CASE WHEN then_.is_over THEN episode.error_class END,
        CASE WHEN then_.is_over THEN episode.error_detail END,
        coalesce(again.node, CASE WHEN then_.ran_at IS NOT NULL THEN episode.first_node END),
        episode.mode,
        CASE WHEN then_.is_over THEN episode.metadata END,
        episode.workflow_id, episode.workflow_instance_id, episode.workflow_step_id,
        episode.queued_at,
        CASE WHEN episode.started_at <= episodes_at.at THEN episode.started_at END,
        CASE WHEN then_.is_over THEN episode.finished_at END,
        episode.forked_from,
        CASE
            WHEN then_.status <> 'blocked' THEN NULL
            WHEN NOT then_.is_asking THEN 'outputs'
            WHEN block.reason = 'wait' AND coalesce(block.ref, '') = '' THEN NULL
            ELSE block.reason
        END,
        episode.journal_seq,
        CASE WHEN then_.is_asking AND block.ref <> '' THEN block.ref END,
        CASE WHEN then_.is_asking THEN block.expires_at END
    FROM episodes AS episode
    LEFT JOIN LATERAL (
        SELECT attempted.attempt, attempted.node, attempted.started_at
        FROM episode_attempts AS attempted
        WHERE attempted.stack = episode.stack AND attempted.episode_id = episode.episode_id
            AND attempted.started_at <= episodes_at.at
        ORDER BY attempted.attempt DESC
        LIMIT 1
    ) AS again ON episode.attempts > 1
    LEFT JOIN LATERAL (
        SELECT
            asked.reason, asked.ref, asked.expires_at,
            asked.resolved_at > episodes_at.at OR asked.resolved_at IS NULL AS is_open,
            asked.resolved_at
        FROM episode_blocks AS asked
        WHERE asked.stack = episode.stack AND asked.episode_id = episode.episode_id
            AND asked.blocked_at <= episodes_at.at
        ORDER BY asked.step_no DESC
        LIMIT 1
    ) AS block ON episode.finished_at IS NULL OR episode.finished_at > episodes_at.at
    CROSS JOIN LATERAL (
        SELECT
            coalesce(episode.finished_at <= episodes_at.at, false) AS is_over,
            coalesce(
                again.started_at,
                CASE WHEN episode.started_at <= episodes_at.at THEN episode.started_at END
            ) AS ran_at
    ) AS moment
    CROSS JOIN LATERAL (
        SELECT
            moment.is_over, moment.ran_at,
            -- What a fork begins with is of the other episode.
            moment.ran_at IS NULL AND episode.forked_from IS NULL AS is_new,
            coalesce(NOT moment.is_over AND block.is_open, false) AS is_asking,
            coalesce(
                episode.deferred_at <= episodes_at.at AND episode.deferred_at >= moment.ran_at,
                false
            ) AS is_deferred,
            CASE
                WHEN moment.is_over THEN episode.status
                WHEN block.is_open THEN 'blocked'
                WHEN episode.deferred_at <= episodes_at.at
                    AND episode.deferred_at >= moment.ran_at THEN 'blocked'
                WHEN episode.left_at <= episodes_at.at
                    AND episode.left_at >= moment.ran_at THEN 'queued'
                WHEN block.resolved_at > moment.ran_at THEN 'queued'
                WHEN moment.ran_at IS NOT NULL THEN 'running'
                ELSE 'queued'
            END AS status
    ) AS then_
    WHERE episode.stack = episodes_at.in_stack
        AND episode.queued_at <= episodes_at.at  -- guard: unopened-not-in-past
        -- Leads to the few that may have had one of the statuses: an end never changes, and what had
        -- none then has ended later or not yet.
        AND (
            episodes_at.statuses IS NULL
            OR (
                (then_.status = ANY(episodes_at.statuses))
                AND (
                    episode.status = ANY(episodes_at.statuses)
                    OR (
                        episodes_at.statuses && ARRAY['queued', 'running', 'blocked']
                        AND (
                            episode.status IN ('queued', 'running', 'blocked')
                            OR (
                                episode.finished_at IS NOT NULL
                                AND tstzrange(
                                    episode.queued_at,
                                    greatest(episode.queued_at, episode.finished_at)
                                ) @> episodes_at.at
                            )
                        )
                    )
                )
            )
        );
END;
COMMENT ON FUNCTION episodes_at(text, timestamptz, text[]) IS
    'The episodes of a stack as they were at a time, those of some statuses or, without, all: status, attempts, node, what they waited for, and how those had ended that had. NULL where nobody knows any more: what one that had not ended had used, its model, agent and metadata. As of now: journal_seq. Of an episode that several nodes gave back, or that waited for its outputs several times, only the last time is known: before, it counts as running.';


CREATE FUNCTION findings_at(in_stack text, at timestamptz, only_active boolean DEFAULT false)
RETURNS TABLE (
    finding_key text, raise_no bigint, status text, severity severity, class text,
    confidence double precision, summary text, subject_kind text, subject_id text, actor_id text,
    expectation_id text, caused_by_key text, raised_by_episode_id uuid, raised_at timestamptz,
    updated_at timestamptz, cleared_at timestamptz, cleared_reason text, cleared_by text,
    expires_at timestamptz, escalated_to severity, acknowledged_by text, journal_seq bigint
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        finding.finding_key, finding.raise_no,
        CASE WHEN next.journal_seq IS NULL THEN last.status ELSE 'superseded' END,
        last.severity, finding.class, last.confidence, last.summary, finding.subject_kind,
        finding.subject_id, finding.actor_id, finding.expectation_id, finding.caused_by_key,
        finding.raised_by_episode_id, finding.raised_at,
        (
            SELECT max(changed.at)
            FROM finding_events AS changed
            WHERE changed.stack = finding.stack AND changed.finding_key = finding.finding_key
                AND changed.raise_no = finding.raise_no AND changed.at <= findings_at.at
                AND changed.kind NOT IN ('finding_noted', 'finding_acknowledged')
        ),
        CASE WHEN last.status <> 'active' THEN finding.cleared_at END,
        CASE WHEN last.status <> 'active' THEN finding.cleared_reason END,
        CASE WHEN last.status <> 'active' THEN finding.cleared_by END,
        last.expires_at,
        (
            SELECT raised.severity
            FROM finding_events AS raised
            WHERE raised.stack = finding.stack AND raised.finding_key = finding.finding_key
                AND raised.raise_no = finding.raise_no AND raised.at <= findings_at.at
                AND raised.kind = 'finding_escalated'
            ORDER BY raised.journal_seq DESC, raised.event_no DESC
            LIMIT 1
        ),
        CASE WHEN finding.acknowledged_at <= findings_at.at THEN finding.acknowledged_by END,
        coalesce(next.journal_seq, last.journal_seq)
    FROM findings AS finding
    CROSS JOIN LATERAL (
        SELECT
            happened.status, happened.severity, happened.confidence, happened.summary,
            happened.expires_at, happened.journal_seq
        FROM finding_events AS happened
        WHERE happened.stack = finding.stack AND happened.finding_key = finding.finding_key
            AND happened.raise_no = finding.raise_no
            AND happened.at <= findings_at.at  -- guard: past-knows-no-later-event
        ORDER BY happened.journal_seq DESC, happened.event_no DESC
        LIMIT 1
    ) AS last
    LEFT JOIN LATERAL (
        SELECT again.journal_seq
        FROM finding_events AS again
        WHERE again.stack = finding.stack AND again.finding_key = finding.finding_key
            AND again.raise_no > finding.raise_no AND again.at <= findings_at.at
        ORDER BY again.journal_seq, again.event_no
        LIMIT 1
    ) AS next ON finding.superseded_at IS NOT NULL
    WHERE finding.stack = findings_at.in_stack
        -- What was active then is, or has changed since.
        AND (
            findings_at.only_active IS NOT TRUE
            OR (
                last.status = 'active' AND next.journal_seq IS NULL
                AND finding.raised_at <= findings_at.at
                AND (
                    finding.status = 'active' OR finding.updated_at > findings_at.at
                    OR finding.superseded_at > findings_at.at
                )
            )
        );
END;
COMMENT ON FUNCTION findings_at(text, timestamptz, boolean) IS
    'The findings of a stack as they were at a time, by their history: one row per raise, or only of those that were active. As of now: class and caused_by_key.';


CREATE FUNCTION inbox_at(in_stack text, at timestamptz)
RETURNS TABLE (
    kind text, id text, actor_id text, expectation_id text, summary text, since timestamptz,
    expires_at timestamptz, what_to_do text, episodes bigint, subject_kind text, subject_id text,
    item bigint, journal_seq bigint, approvers text[], editable boolean, quorum bigint,
    approved_by text[]
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        asking.kind, asking.id, asking.actor_id, asking.expectation_id, asking.summary,
        asking.since, asking.expires_at, asking.what_to_do,
        CASE
            WHEN asking.kind <> 'approval' THEN NULL
            WHEN asking.request IS NULL THEN 1
            ELSE asking.equals
        END,
        asking.subject_kind, asking.subject_id, NULL::bigint, asking.journal_seq,
        asking.approvers, asking.editable, asking.quorum, asking.approved_by
    FROM (
        SELECT
            block.reason AS kind, block.episode_id::text AS id, episode.actor_id,
            episode.expectation_id,
            CASE block.reason
                WHEN 'wait' THEN 'waits for ' || block.ref
                ELSE coalesce(block.summary, left(block.plan::text, 200))
            END AS summary,
            block.blocked_at AS since, block.expires_at,
            CASE block.reason
                WHEN 'wait' THEN 'vigil episodes resolve ' || shell_word(block.ref)
                WHEN 'nondeterministic_replay'
                    THEN format('vigil episodes show %s', block.episode_id)
                ELSE format('vigil episodes approve %s', block.episode_id)
            END AS what_to_do,
            block.journal_seq, block.request, episode.subject_kind, episode.subject_id,
            CASE WHEN block.reason = 'approval' THEN block.approvers ELSE '{}' END AS approvers,
            block.reason = 'approval' AND block.editable AS editable,
            CASE WHEN block.reason = 'approval' THEN block.quorum ELSE 1 END AS quorum,
            CASE WHEN block.reason = 'approval' THEN block.approved_by ELSE '{}' END AS approved_by,
            row_number() OVER equal AS place, count(*) OVER equal AS equals
        FROM episode_blocks AS block
        JOIN episodes AS episode USING (stack, episode_id)
        WHERE block.stack = inbox_at.in_stack
            AND block.blocked_at <= inbox_at.at
            -- guard: answered-later-waited-then
            AND (block.resolved_at IS NULL OR block.resolved_at > inbox_at.at)
            AND (episode.finished_at IS NULL OR episode.finished_at > inbox_at.at)
            AND (block.reason <> 'wait' OR block.ref <> '')
        WINDOW equal AS (
            PARTITION BY block.request
            ORDER BY block.blocked_at, block.episode_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        )
    ) AS asking
    WHERE asking.request IS NULL OR asking.place = 1
    UNION ALL
    SELECT
        'output', output.output_key, output.actor_id, output.expectation_id,
        coalesce(output.summary, left(output.payload::text, 200)), asked.at, output.expires_at,
        format('vigil outputs approve %s', shell_word(output.output_key)), NULL,
        episode.subject_kind, episode.subject_id, NULL, asked.journal_seq, output.approvers, true,
        output.quorum, output.approved_by
    FROM outputs AS output
    CROSS JOIN LATERAL (
        SELECT happened.kind, happened.at, happened.journal_seq, happened.event_no
        FROM output_events AS happened
        WHERE happened.stack = output.stack AND happened.output_key = output.output_key
            AND happened.at <= inbox_at.at
            -- Of several who have to approve it, the first have not answered the request.
            AND happened.kind <> 'output_approval_given'  -- guard: approval-given-waits-on
        ORDER BY happened.journal_seq DESC, happened.event_no DESC
        LIMIT 1
    ) AS asked
    LEFT JOIN LATERAL (
        SELECT happened.kind, happened.error_class, happened.attempt
        FROM output_events AS happened
        WHERE happened.stack = output.stack AND happened.output_key = output.output_key
            AND (happened.journal_seq, happened.event_no) > (asked.journal_seq, asked.event_no)
            AND happened.kind <> 'output_approval_given'
        ORDER BY happened.journal_seq, happened.event_no
        LIMIT 1
    ) AS next ON true
    LEFT JOIN episodes AS episode
        ON episode.stack = output.stack AND episode.episode_id = output.episode_id
    WHERE output.stack = inbox_at.in_stack AND output.created_at <= inbox_at.at
        AND output.payload_hash IS NOT NULL
        AND asked.kind IN ('output_proposed', 'output_retried')
        AND (
            -- The newest request, or one that people or the time have answered.
            output.asked_at = asked.at
            OR next.kind IN ('output_approved', 'output_rejected')
            OR next.kind = 'output_failed' AND next.error_class = 'approval_expired'
                AND next.attempt = 0
        )
    UNION ALL
    SELECT
        'dead_letter', letter.letter_key, letter.actor_id, episode.expectation_id,
        concat_ws(': ', letter.reason, nullif(
            CASE
                WHEN letter.output_key IS NULL THEN letter.detail
                ELSE left(regexp_replace(rtrim(letter.detail, E' \n'), '^.*\n', ''), 120)
            END,
            ''
        )),
        letter.lettered_at, NULL,
        CASE
            WHEN letter.output_key IS NULL THEN 'vigil dead show ' || shell_word(letter.letter_key)
            WHEN output.status <> 'failed' THEN
                'vigil dead discard --reason ''its output has gone on'' '
                || shell_word(letter.letter_key)
            ELSE 'vigil outputs retry ' || shell_word(letter.output_key)
        END,
        NULL, episode.subject_kind, episode.subject_id, NULL, letter.journal_seq, '{}', false,
        1, '{}'
    FROM dead_letters AS letter
    LEFT JOIN episodes AS episode
        ON episode.stack = letter.stack AND episode.episode_id = letter.episode_id
    LEFT JOIN outputs AS output
        ON output.stack = letter.stack AND output.output_key = letter.output_key
    WHERE letter.stack = inbox_at.in_stack AND letter.lettered_at <= inbox_at.at
        AND (letter.settled_at IS NULL OR letter.settled_at > inbox_at.at)
    UNION ALL
    SELECT
        'workflow_step', step.instance_id::text, 'workflow-' || instance.workflow_id,
        step.step_id,
        CASE
            WHEN wait.is_pause THEN concat_ws(
                ': ', format('step %s has failed', step.step_id),
                CASE WHEN step.finished_at <= inbox_at.at THEN step.error_class END,
                CASE WHEN step.finished_at <= inbox_at.at THEN step.error_detail END
            )
            ELSE coalesce(step.summary, format('step %s is to be approved', step.step_id))
        END,
        CASE WHEN wait.is_pause THEN step.paused_at ELSE step.asked_at END,
        CASE WHEN wait.is_pause THEN NULL ELSE step.expires_at END,
        CASE
            WHEN wait.is_pause THEN format(
                'vigil workflows resume %s %s --retry', step.instance_id, step.step_id
            )
            ELSE format('vigil workflows approve %s %s', step.instance_id, step.step_id)
        END,
        NULL, NULL, instance.subject_value, step.item, step.journal_seq,
        CASE WHEN wait.is_pause THEN '{}' ELSE step.approvers END, NOT wait.is_pause,
        CASE WHEN wait.is_pause THEN 1 ELSE step.quorum END,
        CASE WHEN wait.is_pause THEN '{}' ELSE step.approved_by END
    FROM workflow_steps AS step
    JOIN workflow_instances AS instance
        ON instance.stack = step.stack AND instance.instance_id = step.instance_id
    CROSS JOIN LATERAL (
        SELECT
            coalesce(step.asked_at <= inbox_at.at, false) AND (
                step.decided_at IS NULL OR step.decided_at > inbox_at.at
                OR step.decided_at < step.asked_at
            ) AS is_request,
            coalesce(step.paused_at <= inbox_at.at, false) AND (
                step.resumed_at IS NULL OR step.resumed_at > inbox_at.at
                OR step.resumed_at < step.paused_at
            ) AS is_pause
    ) AS wait
    WHERE step.stack = inbox_at.in_stack AND (wait.is_request OR wait.is_pause);
END;
COMMENT ON FUNCTION inbox_at(text, timestamptz) IS
    'What waited for a person at a time, as the view inbox has it, with who could decide, none: anybody, and whether what is approved could be changed. As of now: the command to type, who has approved, journal_seq of all but outputs, and what an output says that was proposed anew since. Unknown: why a step had failed that was tried again since. Missing is what has waited again since: an output whose earlier request was canceled, a step of a workflow, a dead letter that was written anew.';

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
            WHEN earlier.is_over THEN 'retrying'  -- guard: past-attempt-over
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
    -- Of attempts before the newest the row says nothing; what they opened does. NULL: nothing is left.
    CROSS JOIN LATERAL (
        SELECT bool_and(attempt.finished_at <= workflow_steps_at.at) AS is_over
        FROM (
            SELECT episode.queued_at AS opened_at, coalesce(episode.finished_at, 'infinity')
            FROM episodes AS episode
            WHERE episode.stack = step.stack
                AND episode.workflow_instance_id = step.instance_id
                AND episode.workflow_step_id = step.step_id AND episode.workflow_item = step.item
            UNION ALL
            SELECT child.started_at, coalesce(child.finished_at, 'infinity')
            FROM workflow_instances AS child
            WHERE child.stack = step.stack AND child.parent_instance_id = step.instance_id
                AND child.parent_step_id = step.step_id
                AND coalesce((child.trigger_ref ->> 'item')::bigint, 0) = step.item
        ) AS attempt (opened_at, finished_at)
        WHERE moment.is_begun AND NOT moment.is_newest
            AND attempt.opened_at <= workflow_steps_at.at
    ) AS earlier
    WHERE step.stack = workflow_steps_at.in_stack
        AND step.placed_at <= workflow_steps_at.at;  -- guard: unplaced-item-not-in-past
END;
COMMENT ON FUNCTION workflow_steps_at(text, timestamptz) IS
    'The items of steps of a stack''s instances as they were at a time. NULL where nobody knows any more: of an item that was tried again since, the attempt, its episode and how it had ended. Between its first and its newest attempt it counts as running while what those before had opened was not over, or is not kept any more, and otherwise as retrying, even if it waited for a person. As of now: journal_seq, input, and who has approved.';


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

-- What is over due, and why some of it stays. The projector deletes by these functions, and dry runs
-- count by them, so both mean the same. OFFSET 0 keeps Postgres from hashing all that is open for each
-- slice: there are indexes for one. Their bodies are texts, so that a rebuild runs them on the tables that
-- it makes.
CREATE FUNCTION hold_on(in_stack text, actor text, episode uuid, subject text)
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT hold.kind || ' ' || hold.held
    FROM retention_holds AS hold
    WHERE hold.stack = hold_on.in_stack AND hold.is_held
        AND (
            (hold.kind = 'actor' AND hold.held = hold_on.actor)
            OR (hold.kind = 'episode' AND hold.held = hold_on.episode::text)
            OR (hold.kind = 'subject' AND hold.held = hold_on.subject)
        )
    ORDER BY hold.kind, hold.held
    LIMIT 1;
$$;
COMMENT ON FUNCTION hold_on(text, text, uuid, text) IS
    'What holds something of an actor, of an episode or about a subject, such as "actor a". NULL: nothing does.';


CREATE FUNCTION old_episodes(in_stack text, actor text, in_state text, ended_before timestamptz)
RETURNS TABLE (id text, number bigint, ended_at timestamptz, stays text)
LANGUAGE sql STABLE
AS $$
    SELECT
        episode.episode_id::text, 0::bigint, episode.finished_at,
        CASE
            WHEN held.by_what IS NOT NULL THEN held.by_what  -- guard: held-rows-stay
            WHEN EXISTS (
                SELECT FROM workflow_instances AS instance
                WHERE instance.stack = episode.stack
                    AND instance.instance_id = episode.workflow_instance_id
                    AND instance.finished_at IS NULL  -- guard: part-of-open-instance-stays
                OFFSET 0
            ) THEN 'an open instance'
            WHEN EXISTS (
                SELECT FROM episodes AS parent
                WHERE parent.stack = episode.stack AND parent.episode_id = episode.parent_id
                    AND parent.finished_at IS NULL  -- guard: child-of-open-parent-stays
                OFFSET 0
            ) THEN 'an open parent'
            WHEN EXISTS (
                SELECT FROM episodes AS child
                WHERE child.stack = episode.stack AND child.parent_id = episode.episode_id
                    AND child.finished_at IS NULL
                OFFSET 0
            ) THEN 'an open child'
            WHEN EXISTS (
                SELECT FROM outputs AS output
                WHERE output.stack = episode.stack AND output.episode_id = episode.episode_id
                    AND output.status IN ('awaiting_approval', 'proposed')
                OFFSET 0
            ) THEN 'an open output'
            WHEN EXISTS (
                SELECT FROM finding_events AS event
                JOIN findings AS finding USING (stack, finding_key, raise_no)
                WHERE event.stack = episode.stack AND event.episode_id = episode.episode_id
                    AND finding.status = 'active'  -- guard: raiser-of-active-finding-stays
                OFFSET 0
            ) THEN 'an active finding'
            WHEN EXISTS (
                SELECT FROM dead_letters AS letter
                WHERE letter.stack = episode.stack AND letter.status = 'waiting'
                    AND letter.episode_id = episode.episode_id
                OFFSET 0
            ) THEN 'a waiting dead letter'
        END
    FROM episodes AS episode
    CROSS JOIN LATERAL (
        SELECT hold_on(
            episode.stack, episode.actor_id, episode.episode_id, episode.subject_id
        ) AS by_what
    ) AS held
    WHERE episode.stack = old_episodes.in_stack AND episode.actor_id = old_episodes.actor
        AND episode.status = old_episodes.in_state
        AND episode.finished_at IS NOT NULL
        AND episode.finished_at < old_episodes.ended_before;
$$;
COMMENT ON FUNCTION old_episodes(text, text, text, timestamptz) IS
    'The episodes of an actor that ended in a state before a time, and why one stays all the same: what holds it, or what is open and refers to it. NULL: nothing does.';


CREATE FUNCTION old_instances(in_stack text, actor text, in_state text, ended_before timestamptz)
RETURNS TABLE (id text, number bigint, ended_at timestamptz, stays text)
LANGUAGE sql STABLE
AS $$
    SELECT
        instance.instance_id::text, 0::bigint, instance.finished_at,
        CASE
            WHEN held.by_what IS NOT NULL THEN held.by_what
            WHEN EXISTS (
                SELECT FROM workflow_instances AS other
                WHERE other.stack = instance.stack
                    AND other.instance_id = instance.parent_instance_id
                    AND other.finished_at IS NULL
                OFFSET 0
            ) THEN 'an open instance'
            WHEN EXISTS (
                SELECT FROM episodes AS episode
                WHERE episode.stack = instance.stack
                    -- guard: instance-outlives-its-episodes
                    AND episode.workflow_instance_id = instance.instance_id
                OFFSET 0
            ) THEN 'its episodes'
        END
    FROM workflow_instances AS instance
    CROSS JOIN LATERAL (
        SELECT hold_on(
            instance.stack, 'workflow-' || instance.workflow_id, NULL, instance.subject_value
        ) AS by_what
    ) AS held
    WHERE instance.stack = old_instances.in_stack
        AND instance.workflow_id = substr(old_instances.actor, 10)
        AND instance.status = old_instances.in_state
        AND instance.finished_at IS NOT NULL
        AND instance.finished_at < old_instances.ended_before;
$$;
COMMENT ON FUNCTION old_instances(text, text, text, timestamptz) IS
    'The instances of a workflow, given as workflow-NAME, that ended in a state before a time, and why one stays all the same. NULL: nothing keeps it.';


CREATE FUNCTION old_findings(in_stack text, actor text, in_state text, ended_before timestamptz)
RETURNS TABLE (id text, number bigint, ended_at timestamptz, stays text)
LANGUAGE sql STABLE
AS $$
    SELECT
        finding.finding_key, finding.raise_no,
        coalesce(finding.cleared_at, finding.superseded_at, finding.updated_at),
        CASE
            WHEN held.by_what IS NOT NULL THEN held.by_what
            WHEN finding.status <> 'superseded' AND EXISTS (
                SELECT FROM findings AS explained
                WHERE explained.stack = finding.stack
                    AND explained.caused_by_key = finding.finding_key
                    AND explained.status = 'active'  -- guard: cause-of-active-finding-stays
                OFFSET 0
            ) THEN 'an active finding'
        END
    FROM findings AS finding
    CROSS JOIN LATERAL (
        SELECT hold_on(
            finding.stack, finding.actor_id, finding.raised_by_episode_id, finding.subject_id
        ) AS by_what
    ) AS held
    WHERE finding.stack = old_findings.in_stack AND finding.actor_id = old_findings.actor
        AND finding.status <> 'active'
        AND coalesce(finding.cleared_at, finding.superseded_at, finding.updated_at)
            < old_findings.ended_before
        AND old_findings.in_state = '';
$$;
COMMENT ON FUNCTION old_findings(text, text, text, timestamptz) IS
    'The raises of findings of an actor that were over before a time, and why one stays all the same. NULL: nothing keeps it. The state is empty.';


CREATE FUNCTION old_outputs(in_stack text, actor text, in_state text, ended_before timestamptz)
RETURNS TABLE (id text, number bigint, ended_at timestamptz, stays text)
LANGUAGE sql STABLE
AS $$
    SELECT
        output.output_key, 0::bigint, output.created_at,
        CASE
            WHEN held.by_what IS NOT NULL THEN held.by_what
            WHEN EXISTS (
                SELECT FROM episodes AS proposer
                WHERE proposer.stack = output.stack AND proposer.episode_id = output.episode_id
                    AND proposer.finished_at IS NULL
                OFFSET 0
            ) THEN 'an open episode'
            WHEN EXISTS (
                SELECT FROM dead_letters AS letter
                WHERE letter.stack = output.stack AND letter.status = 'waiting'
                    AND letter.output_key = output.output_key
                OFFSET 0
            ) THEN 'a waiting dead letter'
        END
    FROM outputs AS output
    LEFT JOIN episodes AS episode
        ON episode.stack = output.stack AND episode.episode_id = output.episode_id
    CROSS JOIN LATERAL (
        SELECT hold_on(
            output.stack, output.actor_id, output.episode_id, episode.subject_id
        ) AS by_what
    ) AS held
    WHERE output.stack = old_outputs.in_stack AND output.actor_id = old_outputs.actor
        AND output.status IN ('delivered', 'failed', 'rejected', 'canceled')
        AND output.created_at < old_outputs.ended_before
        AND output.updated_at < old_outputs.ended_before
        AND old_outputs.in_state = '';
$$;
COMMENT ON FUNCTION old_outputs(text, text, text, timestamptz) IS
    'The outputs of an actor that were settled before a time, with when they were proposed, and why one stays all the same. NULL: nothing keeps it. The state is empty.';


CREATE FUNCTION old_dead_letters(
    in_stack text, actor text, in_state text, ended_before timestamptz
)
RETURNS TABLE (id text, number bigint, ended_at timestamptz, stays text)
LANGUAGE sql STABLE
AS $$
    SELECT
        letter.letter_key, 0::bigint, letter.settled_at,
        hold_on(letter.stack, letter.actor_id, letter.episode_id, episode.subject_id)
    FROM dead_letters AS letter
    LEFT JOIN episodes AS episode
        ON episode.stack = letter.stack AND episode.episode_id = letter.episode_id
    WHERE letter.stack = old_dead_letters.in_stack AND letter.status <> 'waiting'
        AND letter.settled_at < old_dead_letters.ended_before
        AND old_dead_letters.actor = '' AND old_dead_letters.in_state = '';
$$;
COMMENT ON FUNCTION old_dead_letters(text, text, text, timestamptz) IS
    'The dead letters that were settled before a time, and what holds one. NULL: nothing does. Actor and state are empty.';


-- Claims and checkpoints: which node works on what, and how far the rows have come.

CREATE TABLE work_claims (
    stack text NOT NULL,
    dedupe_key text NOT NULL,
    journal_seq bigint NOT NULL,
    fence bigint NOT NULL,
    work_type text NOT NULL,
    state text NOT NULL CHECK (state IN ('claimed', 'done', 'failed', 'expired')),
    owner_node text,
    attempt bigint,
    claimed_at timestamptz,
    last_heartbeat_at timestamptz,
    lease_until timestamptz,
    finished_at timestamptz,
    error_detail text,
    PRIMARY KEY (stack, dedupe_key)
) WITH (fillfactor = 80);
COMMENT ON TABLE work_claims IS
    'Which node works on what. Filled from the claims bucket, which keeps no history: unlike the other tables it cannot be rebuilt in full.';
COMMENT ON COLUMN work_claims.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN work_claims.dedupe_key IS 'What is claimed; it has one owner at a time.';
COMMENT ON COLUMN work_claims.journal_seq IS
    'Revision in the claims bucket that last changed the row.';
COMMENT ON COLUMN work_claims.fence IS
    'Revision of the claim: grows with every claim and heartbeat.';
COMMENT ON COLUMN work_claims.work_type IS 'What sort of work: episode, node, projector, ….';
COMMENT ON COLUMN work_claims.state IS
    'claimed, done, failed, or expired (its owner stopped renewing it).';
COMMENT ON COLUMN work_claims.owner_node IS 'The node that holds it, or held it last.';
COMMENT ON COLUMN work_claims.attempt IS 'The number of the attempt, from 1.';
COMMENT ON COLUMN work_claims.claimed_at IS 'When it was claimed, by the owner''s clock.';
COMMENT ON COLUMN work_claims.last_heartbeat_at IS
    'When it was last renewed, by the owner''s clock.';
COMMENT ON COLUMN work_claims.lease_until IS
    'When the lease expires unless it is renewed, by the owner''s clock; others count from when they hear of it.';
COMMENT ON COLUMN work_claims.finished_at IS 'When it ended, or when a projector noticed that.';
COMMENT ON COLUMN work_claims.error_detail IS 'Why the work failed, in words.';

CREATE INDEX work_claims_by_owner ON work_claims (stack, owner_node) WHERE state = 'claimed';


CREATE TABLE refusals (
    stack text NOT NULL,
    journal_seq bigint NOT NULL,
    event_id text NOT NULL,
    event text NOT NULL,
    actor_id text NOT NULL,
    expectation_id text NOT NULL,
    subject_id text,
    refused_at timestamptz NOT NULL,
    node text NOT NULL,
    reason text NOT NULL,
    compared_with text NOT NULL,
    against jsonb,
    PRIMARY KEY (stack, journal_seq, refused_at)
);
COMMENT ON TABLE refusals IS
    'Events that did not fire an expectation, and what they were compared with: the newest 200 of each expectation, for 24 hours. Some may be missing.';
COMMENT ON COLUMN refusals.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN refusals.journal_seq IS 'Its sequence in the stream of refusals.';
COMMENT ON COLUMN refusals.event_id IS 'The event''s id; of a tick, its dedupe key.';
COMMENT ON COLUMN refusals.event IS 'The event''s name; tick: of a schedule.';
COMMENT ON COLUMN refusals.actor_id IS 'The actor.';
COMMENT ON COLUMN refusals.expectation_id IS 'The expectation that it did not fire.';
COMMENT ON COLUMN refusals.subject_id IS
    'What the event is about, by the expectation''s subject key. NULL: it has none.';
COMMENT ON COLUMN refusals.refused_at IS 'When it was refused, by the node''s clock.';
COMMENT ON COLUMN refusals.node IS 'The node that refused it.';
COMMENT ON COLUMN refusals.reason IS 'Why: a stable class.';
COMMENT ON COLUMN refusals.compared_with IS 'What it was compared with, in words.';
COMMENT ON COLUMN refusals.against IS
    'The same as data. NULL: the reason says it all.';

CREATE INDEX refusals_by_expectation
ON refusals (stack, actor_id, expectation_id, refused_at DESC);
CREATE INDEX refusals_by_time ON refusals (stack, refused_at);


CREATE TABLE projection_checkpoints (
    stack text NOT NULL,
    projection text NOT NULL,
    journal_seq bigint NOT NULL,
    mark text NOT NULL DEFAULT '',
    trouble text,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (stack, projection)
) WITH (fillfactor = 50);
COMMENT ON TABLE projection_checkpoints IS
    'How far the rows have come; updated in the same transaction as the rows.';
COMMENT ON COLUMN projection_checkpoints.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN projection_checkpoints.projection IS
    'What it follows: journal, state, dead, claims or refusals; state-0of4 is one of four partitions of a state.';
COMMENT ON COLUMN projection_checkpoints.journal_seq IS
    'The rows contain everything up to this sequence (for claims: revision).';
COMMENT ON COLUMN projection_checkpoints.mark IS
    'Identifies the commit at that sequence, so that another journal is not mistaken for this one.';
COMMENT ON COLUMN projection_checkpoints.trouble IS
    'Why the projection has stopped. NULL: it has not.';
COMMENT ON COLUMN projection_checkpoints.updated_at IS 'When it was last updated.';


-- The role that may read everything here and change nothing; grant it to whoever queries:
-- GRANT vigil_reader TO someone. Roles belong to the whole server, so this one may exist
-- already, and who migrates may lack the right to make it. Then the grants are left out.

DO $$
BEGIN
    CREATE ROLE vigil_reader NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'role vigil_reader was not created: % may not create roles', current_user;
END
$$;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'vigil_reader') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO vigil_reader', current_schema());
        EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO vigil_reader', current_schema());
        EXECUTE format(
            'ALTER DEFAULT PRIVILEGES IN SCHEMA %I GRANT SELECT ON TABLES TO vigil_reader',
            current_schema()
        );
    END IF;
END
$$;


-- Rows are for who may read their stack: members of vigil_reader read all, members of
-- vigil_reader_<stack> those of that stack. Whoever owns the tables, as the projector does, is
-- outside of this. A migration that makes a table or a view repeats what the loops do.

CREATE FUNCTION readable_stacks()
RETURNS text[]
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(array_agg(substr(rolname, length('vigil_reader_') + 1)), '{}')
    FROM pg_roles
    WHERE starts_with(rolname, 'vigil_reader_') AND pg_has_role(current_user, oid, 'USAGE');
END;
COMMENT ON FUNCTION readable_stacks() IS
    'The stacks whose rows the current user may read as a member of their vigil_reader_<stack>.';

CREATE FUNCTION create_stack_reader(in_stack text)
RETURNS text
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    reader constant text := 'vigil_reader_' || in_stack;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = reader) THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', reader);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), reader);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO %I', current_schema(), reader);
    EXECUTE format(
        'ALTER DEFAULT PRIVILEGES IN SCHEMA %I GRANT SELECT ON TABLES TO %I', current_schema(), reader
    );
    RETURN reader;
END
$$;
COMMENT ON FUNCTION create_stack_reader(text) IS
    'Makes the role vigil_reader_<stack>, unless it is there, and lets it read the rows of that stack in this schema. Returns its name: GRANT it TO someone. Takes the right to make roles.';

DO $$
DECLARE
    each regclass;
BEGIN
    FOR each IN
        SELECT c.oid
        FROM pg_class AS c
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'stack'
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', each);
        -- The scalar subquery is run once for each query, not for each row.
        EXECUTE format(
            'CREATE POLICY stack_readers ON %s FOR SELECT USING (stack = ANY ((SELECT readable_stacks())::text[]))',  -- guard: readers-of-one-stack
            each
        );
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'vigil_reader') THEN
            EXECUTE format('CREATE POLICY readers ON %s FOR SELECT TO vigil_reader USING (true)', each);
        END IF;
    END LOOP;
    -- Otherwise a view reads as its owner, who sees everything.
    FOR each IN
        SELECT c.oid
        FROM pg_class AS c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'v'
    LOOP
        EXECUTE format('ALTER VIEW %s SET (security_invoker = true)', each);  -- guard: views-read-as-reader
    END LOOP;
END
$$;
