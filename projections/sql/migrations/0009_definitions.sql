-- Actors and workflows that are defined as data: as they stand, and how they came to that; and
-- results of workflows' steps that are used again.

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
COMMENT ON COLUMN agent_definitions.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN agent_definitions.actor_id IS 'The actor that is defined.';
COMMENT ON COLUMN agent_definitions.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN agent_definitions.revision IS
    'From 1; grows each time another definition is applied.';
COMMENT ON COLUMN agent_definitions.is_enabled IS
    'Whether it holds. false: it was disabled, and nodes have let go of it.';
COMMENT ON COLUMN agent_definitions.domain IS 'Its label, for people.';
COMMENT ON COLUMN agent_definitions.spec_rev IS
    'The version that it gives itself. NULL: it gives none.';
COMMENT ON COLUMN agent_definitions.expectations IS 'The names of its expectations.';
COMMENT ON COLUMN agent_definitions.definition IS
    'All of it; what is as by default is left out.';
COMMENT ON COLUMN agent_definitions.applied_at IS 'When this revision was applied.';
COMMENT ON COLUMN agent_definitions.applied_by IS 'Who applied it.';
COMMENT ON COLUMN agent_definitions.applied_reason IS 'Why, in words.';
COMMENT ON COLUMN agent_definitions.first_applied_at IS 'When its first revision was applied.';
COMMENT ON COLUMN agent_definitions.disabled_at IS 'When it was disabled. NULL: it holds.';
COMMENT ON COLUMN agent_definitions.disabled_by IS 'Who disabled it. NULL: it holds.';
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
COMMENT ON COLUMN workflow_definitions.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN workflow_definitions.workflow_id IS 'The workflow''s name.';
COMMENT ON COLUMN workflow_definitions.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN workflow_definitions.revision IS
    'From 1; grows each time another definition is applied.';
COMMENT ON COLUMN workflow_definitions.is_enabled IS
    'Whether it holds. false: it was disabled, and nodes have let go of it.';
COMMENT ON COLUMN workflow_definitions.triggers IS
    'What begins it. NULL: only people do.';
COMMENT ON COLUMN workflow_definitions.subject_key IS
    'What its instances are about: a path in what begins them. NULL: nothing says so.';
COMMENT ON COLUMN workflow_definitions.steps IS
    'The names of its steps, in the order of their declaration.';
COMMENT ON COLUMN workflow_definitions.definition IS
    'All of it; what is as by default is left out.';
COMMENT ON COLUMN workflow_definitions.applied_at IS 'When this revision was applied.';
COMMENT ON COLUMN workflow_definitions.applied_by IS 'Who applied it.';
COMMENT ON COLUMN workflow_definitions.applied_reason IS 'Why, in words.';
COMMENT ON COLUMN workflow_definitions.first_applied_at IS 'When its first revision was applied.';
COMMENT ON COLUMN workflow_definitions.disabled_at IS 'When it was disabled. NULL: it holds.';
COMMENT ON COLUMN workflow_definitions.disabled_by IS 'Who disabled it. NULL: it holds.';
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
    'What happened to definitions, in order: every revision that was ever applied, in full.';
COMMENT ON COLUMN definition_history.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN definition_history.kind IS 'What is defined: agent or workflow.';
COMMENT ON COLUMN definition_history.definition_id IS 'The actor''s id, or the workflow''s name.';
COMMENT ON COLUMN definition_history.journal_seq IS
    'Sequence of the commit that says so, in the journal or in its partition of it.';
COMMENT ON COLUMN definition_history.event_no IS 'Place within that commit, from 0.';
COMMENT ON COLUMN definition_history.change IS 'applied or disabled.';
COMMENT ON COLUMN definition_history.revision IS
    'Which one was applied, or which one held when it was disabled.';
COMMENT ON COLUMN definition_history.definition IS
    'All of what was applied. NULL: it was disabled.';
COMMENT ON COLUMN definition_history.at IS 'When it happened.';
COMMENT ON COLUMN definition_history.person IS 'Who wanted it.';
COMMENT ON COLUMN definition_history.reason IS 'Why, in words.';


ALTER TABLE episodes ADD COLUMN definition_revision bigint;
COMMENT ON COLUMN episodes.definition_revision IS
    'Revision of the definition that its actor was made of when it was opened. NULL: the actor is declared in code.';
COMMENT ON COLUMN episodes.spec_rev IS
    'The version that its actor gave itself when it was opened. NULL: it gave none.';

ALTER TABLE workflow_instances ADD COLUMN definition_revision bigint;
COMMENT ON COLUMN workflow_instances.definition_revision IS
    'Revision of the definition that it began under, and goes on under. NULL: the workflow is declared in code.';


-- An item of a step may take over what an earlier episode brought.

ALTER TABLE workflow_steps ADD COLUMN reused_episode_id uuid;
COMMENT ON COLUMN workflow_steps.reused_episode_id IS
    'The earlier episode whose result stands for this item. NULL: none does.';
