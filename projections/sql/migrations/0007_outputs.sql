-- What goes to the outside, and what waits for people or for word from there.

ALTER TABLE episodes
    ADD COLUMN blocked_by text CHECK (blocked_by IN ('approval', 'wait', 'outputs'));
COMMENT ON COLUMN episodes.status IS
    'queued, running, blocked (it waits, and no node has it), or how it ended: done, failed, partially_failed, canceled.';
COMMENT ON COLUMN episodes.blocked_by IS
    'What it waits for while it is blocked: approval (people), wait (word from outside) or outputs (some of its own are to be delivered, or approved, later).';

ALTER TABLE episodes ADD COLUMN outputs jsonb;
COMMENT ON COLUMN episodes.outputs IS
    'What became of its outputs: of each its output_key, its outcome (delivered, failed, rejected, canceled, duplicate of another episode''s, dry_run) and an error_class. NULL: none has come to anything.';

ALTER TABLE dead_letters ADD COLUMN output_key text;
COMMENT ON COLUMN dead_letters.output_key IS
    'The output that failed. NULL: the letter is of something else.';

COMMENT ON COLUMN episode_steps.kind IS
    'tool_call, synthesis, observation, checkpoint, output, approval or wait.';
COMMENT ON COLUMN episode_steps.tool_name IS
    'capability.action of a tool call; output.<adapter> of an output.';

-- The few that wait for somebody, among however many there are.
CREATE INDEX episodes_asking ON episodes (stack, episode_id)
    WHERE blocked_by IN ('approval', 'wait');
CREATE INDEX dead_letters_waiting ON dead_letters (stack, lettered_at) WHERE status = 'waiting';


CREATE TABLE episode_blocks (
    stack text NOT NULL,
    episode_id uuid NOT NULL,
    step_no bigint NOT NULL,
    journal_seq bigint NOT NULL,
    reason text NOT NULL CHECK (reason IN ('approval', 'wait')),
    plan jsonb,
    plan_hash text,
    summary text,
    approvers text[] NOT NULL DEFAULT '{}',
    ref text,
    blocked_at timestamptz NOT NULL,
    expires_at timestamptz,
    on_expiry text,
    remind_every_s double precision,
    resolution text CHECK (resolution IN ('approved', 'denied', 'resolved', 'expired')),
    resolved_by text,
    resolved_reason text,
    decision_id text,
    resolved_at timestamptz,
    PRIMARY KEY (stack, episode_id, step_no)
) WITH (fillfactor = 80);
COMMENT ON TABLE episode_blocks IS
    'What episodes waited for: requests for approval, and waits for word from outside.';
COMMENT ON COLUMN episode_blocks.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN episode_blocks.episode_id IS 'The episode that waited.';
COMMENT ON COLUMN episode_blocks.step_no IS 'The step that the answer is.';
COMMENT ON COLUMN episode_blocks.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN episode_blocks.reason IS
    'approval (people were asked) or wait (for word from outside).';
COMMENT ON COLUMN episode_blocks.plan IS 'What people were asked to approve.';
COMMENT ON COLUMN episode_blocks.plan_hash IS
    'SHA-256 of the plan, in hex: a decision names it. NULL: of a wait.';
COMMENT ON COLUMN episode_blocks.summary IS 'The plan in one sentence.';
COMMENT ON COLUMN episode_blocks.approvers IS 'Who may decide; none: anybody.';
COMMENT ON COLUMN episode_blocks.ref IS
    'What those outside call that which is waited for. NULL: of an approval.';
COMMENT ON COLUMN episode_blocks.blocked_at IS 'Since when it waited.';
COMMENT ON COLUMN episode_blocks.expires_at IS
    'Until when it can be answered. NULL: it waits for as long as it takes.';
COMMENT ON COLUMN episode_blocks.on_expiry IS
    'What it means that nobody has answered in time: deny, approve, continue or fail.';
COMMENT ON COLUMN episode_blocks.remind_every_s IS 'Seconds between two reminders. NULL: none.';
COMMENT ON COLUMN episode_blocks.resolution IS
    'How it ended: approved, denied, resolved (word has come) or expired. NULL: nobody has answered.';
COMMENT ON COLUMN episode_blocks.resolved_by IS 'Who answered; NULL: nobody has.';
COMMENT ON COLUMN episode_blocks.resolved_reason IS 'Why, in words.';
COMMENT ON COLUMN episode_blocks.decision_id IS 'Id of the request that it followed.';
COMMENT ON COLUMN episode_blocks.resolved_at IS 'When it ended.';


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
    PRIMARY KEY (stack, output_key)
) WITH (fillfactor = 80);
COMMENT ON TABLE outputs IS
    'What episodes deliver to the outside, as it was last proposed. One row for each key: it is delivered once.';
COMMENT ON COLUMN outputs.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN outputs.output_key IS 'What is delivered: whatever has the same key is the same.';
COMMENT ON COLUMN outputs.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN outputs.proposal_no IS
    'From 1; grows when the key is proposed anew, after it failed or was canceled.';
COMMENT ON COLUMN outputs.episode_id IS 'The episode that proposed it.';
COMMENT ON COLUMN outputs.actor_id IS 'The actor whose episode it is.';
COMMENT ON COLUMN outputs.expectation_id IS 'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN outputs.adapter IS 'Who delivers it: a name that the app gives.';
COMMENT ON COLUMN outputs.status IS
    'awaiting_approval, proposed (to be delivered), delivered, failed (for good, unless a person has it tried again), rejected (denied, or not approved in time) or canceled (with its episode).';
COMMENT ON COLUMN outputs.payload IS 'What is delivered.';
COMMENT ON COLUMN outputs.payload_hash IS
    'SHA-256 of the payload, in hex: a decision names it. NULL: it needs no approval.';
COMMENT ON COLUMN outputs.summary IS 'For whoever is to approve it, in one sentence.';
COMMENT ON COLUMN outputs.approvers IS 'Who may approve it; none: anybody.';
COMMENT ON COLUMN outputs.expires_at IS
    'Until when it can be approved. NULL: for as long as it takes.';
COMMENT ON COLUMN outputs.on_expiry IS
    'What it means that nobody has decided in time: deny, approve or fail.';
COMMENT ON COLUMN outputs.remind_every_s IS
    'Seconds between two reminders that it waits for approval. NULL: none.';
COMMENT ON COLUMN outputs.resolution IS
    'What was decided: approved, denied or expired (nobody decided in time). NULL: nothing.';
COMMENT ON COLUMN outputs.decided_by IS 'Who decided; NULL: nobody has.';
COMMENT ON COLUMN outputs.decided_reason IS 'Why, in words.';
COMMENT ON COLUMN outputs.decision_id IS 'Id of the request that the decision followed.';
COMMENT ON COLUMN outputs.decided_at IS 'When it was decided.';
COMMENT ON COLUMN outputs.attempts IS 'How often the adapter was called for this proposal.';
COMMENT ON COLUMN outputs.next_attempt_at IS
    'Not before then it is tried again. NULL: no attempt is put off.';
COMMENT ON COLUMN outputs.delivered_ref IS 'What the receiver calls it.';
COMMENT ON COLUMN outputs.error_class IS
    'Why the last attempt failed: a stable class. NULL: it did not, or another one is under way.';
COMMENT ON COLUMN outputs.error_detail IS 'Why the last attempt failed, in words.';
COMMENT ON COLUMN outputs.created_at IS 'When it was proposed.';
COMMENT ON COLUMN outputs.updated_at IS 'When anything last happened to it.';
COMMENT ON COLUMN outputs.delivered_at IS 'When it was delivered.';
COMMENT ON COLUMN outputs.canceled_at IS 'When it was canceled.';

CREATE INDEX outputs_by_time ON outputs (stack, created_at DESC, output_key DESC);
CREATE INDEX outputs_by_status ON outputs (stack, status, created_at DESC, output_key DESC);
CREATE INDEX outputs_by_episode ON outputs (stack, episode_id);


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
    PRIMARY KEY (stack, output_key, journal_seq, event_no)
);
COMMENT ON TABLE output_events IS 'What happened to outputs, in order: every decision and every attempt.';
COMMENT ON COLUMN output_events.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN output_events.output_key IS 'The output it happened to.';
COMMENT ON COLUMN output_events.journal_seq IS
    'Sequence of the commit that says so, in the journal or in its partition of it.';
COMMENT ON COLUMN output_events.event_no IS 'Place within that commit, from 0.';
COMMENT ON COLUMN output_events.kind IS
    'output_proposed, output_approved, output_rejected, output_attempted, output_postponed, output_delivered, output_failed, output_retried or output_canceled.';
COMMENT ON COLUMN output_events.at IS 'When it happened.';
COMMENT ON COLUMN output_events.proposal_no IS 'Which proposal begins; NULL: none does.';
COMMENT ON COLUMN output_events.episode_id IS 'The episode that proposes it; NULL: none does.';
COMMENT ON COLUMN output_events.attempt IS 'Which attempt at its proposal, from 1.';
COMMENT ON COLUMN output_events.node IS 'The node that calls the adapter.';
COMMENT ON COLUMN output_events.person IS
    'Who decided, or had it tried again; NULL of a decision: nobody has in time.';
COMMENT ON COLUMN output_events.reason IS 'Why, in words.';
COMMENT ON COLUMN output_events.error_class IS 'Why the attempt failed: a stable class.';
COMMENT ON COLUMN output_events.error_detail IS 'Why the attempt failed, in words.';
COMMENT ON COLUMN output_events.next_attempt_at IS 'Not before then another attempt is made.';
COMMENT ON COLUMN output_events.delivered_ref IS 'What the receiver calls it.';


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
    block.resolved_at AS decided_at, block.journal_seq
FROM episode_blocks AS block
JOIN episodes AS episode USING (stack, episode_id)
WHERE block.reason = 'approval'
UNION ALL
SELECT
    stack, 'output', output_key, episode_id, NULL, actor_id, expectation_id, summary,
    payload, payload_hash, approvers, created_at, expires_at, on_expiry,
    CASE
        WHEN resolution IS NOT NULL THEN resolution
        WHEN status = 'canceled' THEN 'canceled'
        ELSE 'pending'
    END,
    decided_by, decided_reason, decided_at, journal_seq
FROM outputs
WHERE payload_hash IS NOT NULL;
COMMENT ON VIEW approvals IS
    'What people were asked to approve, by episodes and of outputs, and what they decided.';
COMMENT ON COLUMN approvals.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN approvals.kind IS 'episode (it asks for itself) or output (one is to be delivered).';
COMMENT ON COLUMN approvals.id IS 'The id of the episode, or the key of the output.';
COMMENT ON COLUMN approvals.episode_id IS 'The episode that asks, or that proposed the output.';
COMMENT ON COLUMN approvals.step_no IS 'Which step of the episode the answer is. NULL: of an output.';
COMMENT ON COLUMN approvals.actor_id IS 'The actor whose episode it is.';
COMMENT ON COLUMN approvals.expectation_id IS 'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN approvals.summary IS 'What is asked, in one sentence.';
COMMENT ON COLUMN approvals.plan IS 'What is to be done, or delivered.';
COMMENT ON COLUMN approvals.plan_hash IS 'SHA-256 of that, in hex: a decision names it.';
COMMENT ON COLUMN approvals.approvers IS 'Who may decide; none: anybody.';
COMMENT ON COLUMN approvals.requested_at IS 'When it was asked.';
COMMENT ON COLUMN approvals.expires_at IS
    'Until when it can be decided. NULL: it waits for as long as it takes.';
COMMENT ON COLUMN approvals.on_expiry IS
    'What it means that nobody has decided in time: deny, approve or fail.';
COMMENT ON COLUMN approvals.state IS
    'pending, approved, denied, expired (nobody decided in time) or canceled (with its episode).';
COMMENT ON COLUMN approvals.decided_by IS 'Who decided; NULL: nobody has.';
COMMENT ON COLUMN approvals.decided_reason IS 'Why, in words.';
COMMENT ON COLUMN approvals.decided_at IS 'When it was decided.';
COMMENT ON COLUMN approvals.journal_seq IS
    'Sequence of the commit that last changed it, in the journal or in its partition of it.';


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
COMMENT ON VIEW waits IS 'What episodes waited for from outside, and whether word has come.';
COMMENT ON COLUMN waits.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN waits.episode_id IS 'The episode that waits.';
COMMENT ON COLUMN waits.step_no IS 'Which step of the episode the answer is.';
COMMENT ON COLUMN waits.actor_id IS 'The actor whose episode it is.';
COMMENT ON COLUMN waits.expectation_id IS 'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN waits.ref IS 'What those outside call it.';
COMMENT ON COLUMN waits.since IS 'Since when it waits.';
COMMENT ON COLUMN waits.expires_at IS
    'Until when it waits. NULL: for as long as it takes.';
COMMENT ON COLUMN waits.on_expiry IS
    'What it means that no word has come in time: continue or fail.';
COMMENT ON COLUMN waits.state IS
    'pending, resolved (word has come), expired (none has in time) or canceled (with its episode).';
COMMENT ON COLUMN waits.resolved_by IS 'Who brought word; NULL: nobody has.';
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

CREATE VIEW inbox AS
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
ORDER BY since;
COMMENT ON VIEW inbox IS 'What waits for a person now, the oldest first, and what to do about it.';
COMMENT ON COLUMN inbox.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN inbox.kind IS
    'approval (an episode asks), output (one is to be approved), wait (for word from outside) or dead_letter (something could not be done).';
COMMENT ON COLUMN inbox.id IS
    'The id of the episode that asks or waits, or the key of the output or of the dead letter.';
COMMENT ON COLUMN inbox.actor_id IS 'The actor that it is about, where it is about one.';
COMMENT ON COLUMN inbox.expectation_id IS
    'Which of the actor''s expectations was triggered, where there is an episode.';
COMMENT ON COLUMN inbox.summary IS 'What it is about, in words.';
COMMENT ON COLUMN inbox.since IS 'Since when it waits.';
COMMENT ON COLUMN inbox.expires_at IS
    'Until when it can be answered. NULL: it waits for as long as it takes.';
COMMENT ON COLUMN inbox.what_to_do IS
    'The command to type. Instead of `approve` say `deny` of an episode, `reject` of an output.';
COMMENT ON COLUMN inbox.journal_seq IS
    'Sequence of the commit that last changed it, in the journal or the stream of dead letters.';
