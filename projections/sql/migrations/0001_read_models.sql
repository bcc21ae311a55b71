-- The read models: what the journal says, as rows.
--
-- Runs with search_path set to the one schema it fills, so names are never qualified.
-- No foreign keys: rows come from independent aggregates, in the journal's order.
-- Columns that people's data fills may be of any size, so none of them is in a B-tree.

CREATE TYPE severity AS ENUM ('low', 'medium', 'high', 'critical');
COMMENT ON TYPE severity IS 'How bad a finding is. Ordered: low < medium < high < critical.';


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
    started_at timestamptz,
    finished_at timestamptz,
    turns_used bigint NOT NULL DEFAULT 0,
    tokens_used bigint NOT NULL DEFAULT 0,
    classification jsonb,
    confidence double precision,
    summary text,
    error_class text,
    error_detail text,
    PRIMARY KEY (stack, episode_id)
) WITH (fillfactor = 80);
COMMENT ON TABLE episodes IS
    'Runs of actors: what woke them, how far they are, what they found out. One row each.';
COMMENT ON COLUMN episodes.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN episodes.episode_id IS 'Made from its cause: the same cause is the same episode.';
COMMENT ON COLUMN episodes.journal_seq IS 'Journal sequence of the commit that last changed the row.';
COMMENT ON COLUMN episodes.actor_id IS 'The actor that runs.';
COMMENT ON COLUMN episodes.expectation_id IS 'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN episodes.spec_rev IS 'Revision of the actor''s definition when it was opened.';
COMMENT ON COLUMN episodes.generation IS 'Grows when the same cause is to run once more.';
COMMENT ON COLUMN episodes.trigger_type IS 'What woke it: event or manual.';
COMMENT ON COLUMN episodes.trigger_ref IS 'The trigger in full; payload holds what the event said.';
COMMENT ON COLUMN episodes.subject_kind IS 'What the episode is about: the expectation''s subject key.';
COMMENT ON COLUMN episodes.subject_id IS 'Which one of that kind: the value in the trigger''s payload.';
COMMENT ON COLUMN episodes.dedupe_key IS 'Triggers with the same key are one episode.';
COMMENT ON COLUMN episodes.budget IS 'What it may use: turns, tokens, wall_s (seconds). 0 or less: no limit.';
COMMENT ON COLUMN episodes.queued_at IS 'When it was opened.';
COMMENT ON COLUMN episodes.status IS
    'queued, running, blocked, or how it ended: done, failed, partially_failed, canceled.';
COMMENT ON COLUMN episodes.node IS 'The node that runs it, or ran it last.';
COMMENT ON COLUMN episodes.attempts IS 'Starts so far: 1, and 1 more for every takeover.';
COMMENT ON COLUMN episodes.started_at IS 'When it first started.';
COMMENT ON COLUMN episodes.finished_at IS 'When it ended.';
COMMENT ON COLUMN episodes.turns_used IS 'Actions so far: recorded steps while it runs, the exact count at the end.';
COMMENT ON COLUMN episodes.tokens_used IS 'Model tokens so far.';
COMMENT ON COLUMN episodes.classification IS 'What the strategy decided is true.';
COMMENT ON COLUMN episodes.confidence IS 'How sure the strategy is, 0 to 1.';
COMMENT ON COLUMN episodes.summary IS 'What the strategy found, in words.';
COMMENT ON COLUMN episodes.error_class IS 'Why it failed: a stable class, such as budget_exceeded.';
COMMENT ON COLUMN episodes.error_detail IS 'Why it failed, in words.';

-- For lists: `sql/list_episodes.sql`. Without journal_seq, or no update would be in place.
CREATE INDEX episodes_by_start ON episodes (stack, started_at DESC, queued_at DESC);
CREATE INDEX episodes_by_status ON episodes (stack, status, started_at DESC, queued_at DESC);
CREATE INDEX episodes_by_expectation ON episodes
    (stack, actor_id, expectation_id, started_at DESC);
CREATE INDEX episodes_by_subject ON episodes USING hash (subject_id);


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
    PRIMARY KEY (stack, episode_id, step_no)
);
COMMENT ON TABLE episode_steps IS 'What episodes did, step by step.';
COMMENT ON COLUMN episode_steps.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN episode_steps.episode_id IS 'The episode that took the step.';
COMMENT ON COLUMN episode_steps.step_no IS 'From 1, without gaps.';
COMMENT ON COLUMN episode_steps.journal_seq IS 'Journal sequence of the commit that last changed the row.';
COMMENT ON COLUMN episode_steps.kind IS 'tool_call, synthesis, observation or checkpoint.';
COMMENT ON COLUMN episode_steps.state IS
    'announced: a side effect was about to happen and nobody recorded that it did. recorded: done.';
COMMENT ON COLUMN episode_steps.tool_name IS 'capability.action of a tool call.';
COMMENT ON COLUMN episode_steps.created_at IS 'When it was recorded; until then, when it was announced.';
COMMENT ON COLUMN episode_steps.announced_at IS 'When its side effect was announced.';
COMMENT ON COLUMN episode_steps.side_effect_key IS 'The idempotency key that the tool was given.';
COMMENT ON COLUMN episode_steps.args_redacted IS 'What it was asked, without secrets.';
COMMENT ON COLUMN episode_steps.result IS 'What came of it, as people may see it.';
COMMENT ON COLUMN episode_steps.error_class IS 'Why it failed: a stable class.';
COMMENT ON COLUMN episode_steps.error_detail IS 'Why it failed, in words.';
COMMENT ON COLUMN episode_steps.cost_tokens IS 'Model tokens it used.';
COMMENT ON COLUMN episode_steps.cost_ms IS 'How long it took, in milliseconds.';
COMMENT ON COLUMN episode_steps.model IS 'The model that answered.';


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
    'When strategies asked to keep their state. The states are in the journal only: they may hold what is redacted here.';
COMMENT ON COLUMN episode_checkpoints.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN episode_checkpoints.episode_id IS 'The episode whose state it is.';
COMMENT ON COLUMN episode_checkpoints.checkpoint_no IS 'Which checkpoint of the episode.';
COMMENT ON COLUMN episode_checkpoints.journal_seq IS 'Journal sequence of the commit that last changed the row.';
COMMENT ON COLUMN episode_checkpoints.step_no IS 'The step that saved it; a resume goes on after it.';
COMMENT ON COLUMN episode_checkpoints.phase IS 'What the strategy calls it.';
COMMENT ON COLUMN episode_checkpoints.schema_version IS 'Version of the state''s shape.';
COMMENT ON COLUMN episode_checkpoints.state_size_bytes IS 'How large the state is, in bytes of JSON.';
COMMENT ON COLUMN episode_checkpoints.created_at IS 'When it was saved.';


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
    PRIMARY KEY (stack, finding_key, raise_no)
) WITH (fillfactor = 80);
COMMENT ON TABLE findings IS
    'Lasting observations about subjects. One row per raise; at most one per key is active.';
COMMENT ON COLUMN findings.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN findings.finding_key IS 'What is observed: raising the same key again refreshes it.';
COMMENT ON COLUMN findings.raise_no IS 'From 1; a raise after a clear is a new one.';
COMMENT ON COLUMN findings.journal_seq IS 'Journal sequence of the commit that last changed the row.';
COMMENT ON COLUMN findings.status IS 'active or cleared.';
COMMENT ON COLUMN findings.actor_id IS 'The actor that raised it.';
COMMENT ON COLUMN findings.expectation_id IS 'The expectation whose episode raised it.';
COMMENT ON COLUMN findings.class IS 'What sort of finding it is.';
COMMENT ON COLUMN findings.severity IS 'How bad it is: low < medium < high < critical.';
COMMENT ON COLUMN findings.confidence IS 'How sure its actor is, 0 to 1.';
COMMENT ON COLUMN findings.summary IS 'What is observed, in words.';
COMMENT ON COLUMN findings.subject_kind IS 'What sort of thing it is about.';
COMMENT ON COLUMN findings.subject_id IS 'Which thing it is about.';
COMMENT ON COLUMN findings.evidence_refs IS 'What it rests on.';
COMMENT ON COLUMN findings.caused_by_key IS 'Key of the finding that explains this one.';
COMMENT ON COLUMN findings.raised_by_episode_id IS 'The episode that raised it.';
COMMENT ON COLUMN findings.raised_at IS 'When it was raised.';
COMMENT ON COLUMN findings.updated_at IS 'When it was last raised, refreshed, changed or cleared.';
COMMENT ON COLUMN findings.cleared_by_episode_id IS 'The episode that cleared it; null when a person did.';
COMMENT ON COLUMN findings.cleared_at IS 'When it was cleared.';
COMMENT ON COLUMN findings.cleared_reason IS 'Why it was cleared, in words.';

CREATE INDEX findings_active ON findings (stack, severity DESC, updated_at DESC)
    WHERE status = 'active';
CREATE INDEX findings_by_actor ON findings (stack, actor_id, updated_at DESC);
CREATE INDEX findings_by_subject ON findings USING hash (subject_id);


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
    PRIMARY KEY (stack, finding_key, journal_seq, event_no)
);
COMMENT ON TABLE finding_events IS 'What happened to findings, in order, with what they said then.';
COMMENT ON COLUMN finding_events.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN finding_events.finding_key IS 'The finding it happened to.';
COMMENT ON COLUMN finding_events.journal_seq IS 'Journal sequence of the commit that says so.';
COMMENT ON COLUMN finding_events.event_no IS 'Place within that commit, from 0.';
COMMENT ON COLUMN finding_events.kind IS 'finding_raised, finding_updated or finding_cleared.';
COMMENT ON COLUMN finding_events.raise_no IS 'Which raise of the finding.';
COMMENT ON COLUMN finding_events.episode_id IS 'The episode that caused it; null when a person did.';
COMMENT ON COLUMN finding_events.status IS 'The finding''s status from then on.';
COMMENT ON COLUMN finding_events.severity IS 'Its severity from then on.';
COMMENT ON COLUMN finding_events.confidence IS 'Its confidence from then on.';
COMMENT ON COLUMN finding_events.summary IS 'What it said from then on.';
COMMENT ON COLUMN finding_events.evidence_refs IS 'What it rested on from then on.';
COMMENT ON COLUMN finding_events.at IS 'When it happened.';

CREATE INDEX finding_events_by_episode ON finding_events (stack, episode_id);


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
    'Who works on what. From the claims bucket, which forgets: unlike the other tables it cannot be made again in full.';
COMMENT ON COLUMN work_claims.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN work_claims.dedupe_key IS 'What is claimed: one owner at a time.';
COMMENT ON COLUMN work_claims.journal_seq IS 'Revision in the claims bucket that last changed the row.';
COMMENT ON COLUMN work_claims.fence IS 'Revision of the claim: grows with every claim and heartbeat.';
COMMENT ON COLUMN work_claims.work_type IS 'What sort of work: episode, projector, ….';
COMMENT ON COLUMN work_claims.state IS
    'claimed, done, failed, or expired (its owner stopped renewing it).';
COMMENT ON COLUMN work_claims.owner_node IS 'The node that holds it, or held it last.';
COMMENT ON COLUMN work_claims.attempt IS 'Which go at the work this is, from 1.';
COMMENT ON COLUMN work_claims.claimed_at IS 'When it was claimed, by the owner''s clock.';
COMMENT ON COLUMN work_claims.last_heartbeat_at IS 'When it was last renewed, by the owner''s clock.';
COMMENT ON COLUMN work_claims.lease_until IS 'When it ends unless renewed, by the owner''s clock; the server''s own timer decides.';
COMMENT ON COLUMN work_claims.finished_at IS 'When it ended, or when a projector noticed that it had.';
COMMENT ON COLUMN work_claims.error_detail IS 'Why the work failed, in words.';

CREATE INDEX work_claims_by_owner ON work_claims (stack, owner_node) WHERE state = 'claimed';


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
    PRIMARY KEY (stack, letter_key)
);
COMMENT ON TABLE dead_letters IS 'What could not be done, and why, until a person decides.';
COMMENT ON COLUMN dead_letters.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN dead_letters.letter_key IS 'Names the letter: where it comes from, and its cause there.';
COMMENT ON COLUMN dead_letters.journal_seq IS 'Sequence, in the stream of dead letters, of the commit that last changed the row.';
COMMENT ON COLUMN dead_letters.reason IS 'Why it was rejected: a stable class.';
COMMENT ON COLUMN dead_letters.detail IS 'Why it was rejected, in words.';
COMMENT ON COLUMN dead_letters.source_stream IS 'The stream that holds the rejected message, or held it.';
COMMENT ON COLUMN dead_letters.source_seq IS 'Its sequence there.';
COMMENT ON COLUMN dead_letters.source_subject IS 'Its subject.';
COMMENT ON COLUMN dead_letters.actor_id IS 'The actor that was to handle it.';
COMMENT ON COLUMN dead_letters.episode_id IS 'The episode that was given up on, where it is one.';
COMMENT ON COLUMN dead_letters.headers IS 'Its headers.';
COMMENT ON COLUMN dead_letters.payload IS 'The message as it came, cut when it is very long.';
COMMENT ON COLUMN dead_letters.payload_size_bytes IS 'Its full size, in bytes.';
COMMENT ON COLUMN dead_letters.lettered_at IS 'When it was rejected.';
COMMENT ON COLUMN dead_letters.status IS
    'waiting for a person, requeued (tried again) or discarded (of no use).';
COMMENT ON COLUMN dead_letters.settled_at IS 'When a person decided.';
COMMENT ON COLUMN dead_letters.settled_by IS 'Who decided.';
COMMENT ON COLUMN dead_letters.settled_note IS
    'What it is tried again as, an event''s sequence or an episode; or why it was discarded.';

CREATE INDEX dead_letters_by_time ON dead_letters (stack, lettered_at DESC);


CREATE TABLE projection_checkpoints (
    stack text NOT NULL,
    projection text NOT NULL,
    journal_seq bigint NOT NULL,
    mark text NOT NULL DEFAULT '',
    trouble text,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (stack, projection)
) WITH (fillfactor = 50);
COMMENT ON TABLE projection_checkpoints IS 'How far the rows have come; moves in the same transaction as they do.';
COMMENT ON COLUMN projection_checkpoints.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN projection_checkpoints.projection IS 'What is followed: journal, dead or claims.';
COMMENT ON COLUMN projection_checkpoints.journal_seq IS 'Everything up to this sequence (of claims: revision) is in the rows.';
COMMENT ON COLUMN projection_checkpoints.mark IS
    'Which commit stands at that sequence, so that another journal is not taken for this one.';
COMMENT ON COLUMN projection_checkpoints.trouble IS 'Why it stands still, if it does; until then NULL.';
COMMENT ON COLUMN projection_checkpoints.updated_at IS 'When it last moved.';


CREATE VIEW active_findings AS
SELECT
    stack, finding_key, raise_no, severity, class, summary, confidence, subject_kind,
    subject_id, actor_id, expectation_id, caused_by_key, raised_by_episode_id, raised_at,
    updated_at, evidence_refs, journal_seq
FROM findings
WHERE status = 'active';
COMMENT ON VIEW active_findings IS 'What is true now.';
COMMENT ON COLUMN active_findings.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN active_findings.finding_key IS 'What is observed.';
COMMENT ON COLUMN active_findings.raise_no IS 'Which raise of the key.';
COMMENT ON COLUMN active_findings.severity IS 'How bad it is: low < medium < high < critical.';
COMMENT ON COLUMN active_findings.class IS 'What sort of finding it is.';
COMMENT ON COLUMN active_findings.summary IS 'What is observed, in words.';
COMMENT ON COLUMN active_findings.confidence IS 'How sure its actor is, 0 to 1.';
COMMENT ON COLUMN active_findings.subject_kind IS 'What sort of thing it is about.';
COMMENT ON COLUMN active_findings.subject_id IS 'Which thing it is about.';
COMMENT ON COLUMN active_findings.actor_id IS 'The actor that raised it.';
COMMENT ON COLUMN active_findings.expectation_id IS 'The expectation whose episode raised it.';
COMMENT ON COLUMN active_findings.caused_by_key IS 'Key of the finding that explains this one.';
COMMENT ON COLUMN active_findings.raised_by_episode_id IS 'The episode that raised it.';
COMMENT ON COLUMN active_findings.raised_at IS 'When it was raised.';
COMMENT ON COLUMN active_findings.updated_at IS 'When it was last refreshed or changed.';
COMMENT ON COLUMN active_findings.evidence_refs IS 'What it rests on.';
COMMENT ON COLUMN active_findings.journal_seq IS 'Journal sequence of the commit that last changed it.';


CREATE VIEW running_episodes AS
SELECT
    stack, episode_id, actor_id, expectation_id, node, attempts, subject_kind, subject_id,
    turns_used, tokens_used, budget, started_at, now() - started_at AS running_for, journal_seq
FROM episodes
WHERE status = 'running';
COMMENT ON VIEW running_episodes IS 'What runs now, and where.';
COMMENT ON COLUMN running_episodes.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN running_episodes.episode_id IS 'The episode.';
COMMENT ON COLUMN running_episodes.actor_id IS 'The actor that runs.';
COMMENT ON COLUMN running_episodes.expectation_id IS 'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN running_episodes.node IS 'The node that runs it.';
COMMENT ON COLUMN running_episodes.attempts IS 'Starts so far.';
COMMENT ON COLUMN running_episodes.subject_kind IS 'What sort of thing it is about.';
COMMENT ON COLUMN running_episodes.subject_id IS 'Which thing it is about.';
COMMENT ON COLUMN running_episodes.turns_used IS 'Recorded steps so far.';
COMMENT ON COLUMN running_episodes.tokens_used IS 'Model tokens so far.';
COMMENT ON COLUMN running_episodes.budget IS 'What it may use: turns, tokens, wall_s (seconds).';
COMMENT ON COLUMN running_episodes.started_at IS 'When it first started.';
COMMENT ON COLUMN running_episodes.running_for IS 'Time since it first started.';
COMMENT ON COLUMN running_episodes.journal_seq IS 'Journal sequence of the commit that last changed it.';
