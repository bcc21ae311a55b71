-- Turns are counted as for the budget: a retried call is one turn, however many steps it has.

COMMENT ON COLUMN episodes.turns_used IS
    'Turns so far, as its budget counts them: one for each step, but none for the pauses and later attempts of a call that is retried. The conclusion counts as one, too.';
COMMENT ON COLUMN running_episodes.turns_used IS 'Turns so far; see `episodes`.';

CREATE OR REPLACE VIEW episode_logs AS
SELECT
    stack, episode_id, log_strategy, 'markdown' AS format,
    CASE log_strategy
        WHEN 'summary_only'
        THEN concat_ws(': ', status, error_class, last_line(error_detail), summary)
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
    (
        SELECT coalesce(max(step_no), 0)
        FROM episode_steps AS step
        WHERE (step.stack, step.episode_id) = (episode.stack, episode.episode_id)
            AND step.state = 'recorded'
    ) AS last_step_no,
    journal_seq
FROM episodes AS episode
WHERE log_strategy <> 'none';
