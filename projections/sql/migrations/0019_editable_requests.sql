-- Whether the person who approves may change the plan.

ALTER TABLE episode_blocks ADD COLUMN editable boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN episode_blocks.editable IS
    'Whether the person who approves may change the plan. False for a wait, and for rows older than this column.';
