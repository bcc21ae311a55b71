-- Whether people may change what they approve.

ALTER TABLE episode_blocks ADD COLUMN editable boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN episode_blocks.editable IS
    'Whether who approves may change the plan. False for a wait, and for rows from before this column.';
