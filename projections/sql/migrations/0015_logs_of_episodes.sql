-- What an episode did as a text for people, as much of it as its log strategy lets them see.

ALTER TABLE episodes ADD COLUMN log_strategy text NOT NULL DEFAULT 'full_debug';
COMMENT ON COLUMN episodes.log_strategy IS
    'What people may see of its steps: none, summary_only, timeline or full_debug.';
COMMENT ON COLUMN episode_steps.args_redacted IS
    'Its arguments as far as people may see them. NULL: there are none, or they may not.';
COMMENT ON COLUMN episode_steps.result IS
    'Its result as far as people may see it. NULL: there is none, or they may not.';


CREATE FUNCTION log_line(at timestamptz, says text, cost_ms bigint, more jsonb)
RETURNS text
LANGUAGE sql STABLE
RETURN concat(
    '- `', to_char(at AT TIME ZONE 'UTC', 'HH24:MI:SS'), '` ', says,
    CASE WHEN cost_ms > 0 THEN format(' (%s ms)', cost_ms) END,
    (
        SELECT string_agg(format(E'\n  - %s: `%s`', key, value), '' ORDER BY key)
        FROM jsonb_each(more)
    )
);
COMMENT ON FUNCTION log_line(timestamptz, text, bigint, jsonb) IS
    'A row of `episode_timeline` as Markdown; `more` is an object, one line for each of its values.';

CREATE VIEW episode_logs AS
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
    turns_used AS last_step_no, journal_seq
FROM episodes AS episode
WHERE log_strategy <> 'none';
COMMENT ON VIEW episode_logs IS
    'What episodes did, as a text for people. Those whose log strategy is none are not there.';
COMMENT ON COLUMN episode_logs.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episode_logs.episode_id IS 'The episode.';
COMMENT ON COLUMN episode_logs.log_strategy IS
    'summary_only (one line: its status and summary), timeline (a line for each row of `episode_timeline`) or full_debug (with the details of each).';
COMMENT ON COLUMN episode_logs.format IS 'markdown.';
COMMENT ON COLUMN episode_logs.content IS 'The text. Times are in UTC.';
COMMENT ON COLUMN episode_logs.last_step_no IS 'How many steps it had taken.';
COMMENT ON COLUMN episode_logs.journal_seq IS
    'Sequence of the commit that last changed the row of the episode, in the journal or in its partition of it.';
