-- Which episode acts on an approval of a request that several have made.

ALTER TABLE episode_blocks
    ADD COLUMN acting_episode_id uuid,
    DROP CONSTRAINT episode_blocks_resolution_check,
    ADD CONSTRAINT episode_blocks_resolution_check CHECK (
        resolution IN ('approved', 'denied', 'resolved', 'expired', 'superseded')
    );
COMMENT ON COLUMN episode_blocks.resolution IS
    'How it ended: approved, denied, resolved (the event has come), expired, or superseded (approved for an older episode with an equal request, which acts). NULL: it still waits.';
COMMENT ON COLUMN episode_blocks.acting_episode_id IS
    'If it is superseded: the episode that acts. NULL: otherwise.';
COMMENT ON COLUMN approvals.state IS
    'pending, approved, denied, expired (nobody decided in time), superseded (approved for an older episode with an equal request, which acts) or canceled (with its episode, or an output alone).';
