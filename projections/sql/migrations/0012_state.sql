-- Findings, definitions and lanes are in a stream of their own.

COMMENT ON COLUMN findings.journal_seq IS
    'Sequence of the commit that last changed the row, in the state or in its partition of it.';
COMMENT ON COLUMN finding_events.journal_seq IS
    'Sequence of its commit, in the state or in its partition of it.';
COMMENT ON COLUMN active_findings.journal_seq IS
    'Sequence of the commit that last changed it, in the state or in its partition of it.';
COMMENT ON COLUMN lane_tickets.journal_seq IS
    'Sequence of the commit that last changed the row, in the state or in its partition of it.';
COMMENT ON COLUMN agent_definitions.journal_seq IS
    'Sequence of the commit that last changed the row, in the state or in its partition of it.';
COMMENT ON COLUMN workflow_definitions.journal_seq IS
    'Sequence of the commit that last changed the row, in the state or in its partition of it.';
COMMENT ON COLUMN definition_history.journal_seq IS
    'Sequence of its commit, in the state or in its partition of it.';
COMMENT ON COLUMN projection_checkpoints.projection IS
    'What it follows: journal, state, dead or claims; state-0of4 is one of four partitions of a state.';
