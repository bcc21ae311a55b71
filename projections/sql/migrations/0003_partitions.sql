-- A stack's journal may be spread over partitions, each with a sequence and a checkpoint of
-- its own. Only what the columns mean is new.

COMMENT ON COLUMN episodes.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN episode_steps.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN episode_checkpoints.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN findings.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN finding_events.journal_seq IS
    'Sequence of the commit that says so, in the journal or in its partition of it.';
COMMENT ON COLUMN active_findings.journal_seq IS
    'Sequence of the commit that last changed it, in the journal or in its partition of it.';
COMMENT ON COLUMN running_episodes.journal_seq IS
    'Sequence of the commit that last changed it, in the journal or in its partition of it.';
COMMENT ON COLUMN projection_checkpoints.projection IS
    'What is followed: journal, dead or claims; a partition of a journal that has several is journal-0of4.';
COMMENT ON COLUMN projection_checkpoints.journal_seq IS
    'Everything up to this sequence of what is followed (of claims: revision) is in the rows.';
