-- Writes the files of all tables with contents of users anew, without rows and values that are gone.
VACUUM (FULL, ANALYZE)
    episodes, episode_steps, episode_checkpoints, episode_blocks, findings, finding_events, outputs,
    output_events, workflow_instances, workflow_steps, dead_letters, refusals
