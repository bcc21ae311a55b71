-- Whether episodes kept what their expectations promised.

ALTER TABLE episodes
    ADD COLUMN service_level jsonb,
    ADD COLUMN level_outcome text;
COMMENT ON COLUMN episodes.service_level IS
    'What its expectation promised when it was opened: start_s, end_s, success, window. NULL: nothing.';
COMMENT ON COLUMN episodes.level_outcome IS
    'Whether that was kept: met, or what was broken first: late_start, failed, late_end. NULL: it does not count, or has not ended.';

CREATE INDEX episodes_by_level ON episodes
    (stack, actor_id, expectation_id, finished_at DESC, episode_id)
    WHERE level_outcome IS NOT NULL;


CREATE VIEW service_levels AS
SELECT
    newest.stack, newest.actor_id, newest.expectation_id,
    (newest.service_level ->> 'start_s')::double precision AS start_s,
    (newest.service_level ->> 'end_s')::double precision AS end_s,
    (newest.service_level ->> 'success')::double precision AS success,
    (newest.service_level ->> 'window')::bigint AS episodes_max,
    counted.episodes, counted.met, counted.late_start, counted.failed, counted.late_end,
    counted.met::double precision / counted.episodes AS ratio,
    counted.met >= (newest.service_level ->> 'success')::numeric * counted.episodes AS is_kept,
    counted.start_p50_s, counted.start_p95_s, counted.end_p50_s, counted.end_p95_s,
    counted.since, newest.finished_at AS until, newest.journal_seq
FROM (
    SELECT DISTINCT ON (stack, actor_id, expectation_id)
        stack, actor_id, expectation_id, service_level, finished_at, journal_seq
    FROM episodes
    WHERE level_outcome IS NOT NULL
    ORDER BY stack, actor_id, expectation_id, finished_at DESC, episode_id
) AS newest
CROSS JOIN LATERAL (
    SELECT
        count(*) AS episodes,
        count(*) FILTER (WHERE level_outcome = 'met') AS met,
        count(*) FILTER (WHERE level_outcome = 'late_start') AS late_start,
        count(*) FILTER (WHERE level_outcome = 'failed') AS failed,
        count(*) FILTER (WHERE level_outcome = 'late_end') AS late_end,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY start_s) AS start_p50_s,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY start_s) AS start_p95_s,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY end_s) AS end_p50_s,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY end_s) AS end_p95_s,
        min(finished_at) AS since
    FROM (
        SELECT
            level_outcome, finished_at,
            extract(epoch FROM started_at - queued_at)::double precision AS start_s,
            extract(epoch FROM finished_at - queued_at)::double precision AS end_s
        FROM episodes AS episode
        WHERE (episode.stack, episode.actor_id, episode.expectation_id)
            = (newest.stack, newest.actor_id, newest.expectation_id)
            AND level_outcome IS NOT NULL
        ORDER BY finished_at DESC, episode_id
        LIMIT (newest.service_level ->> 'window')::bigint  -- guard: level-rows-window
    ) AS latest
) AS counted;
COMMENT ON VIEW service_levels IS
    'What expectations promise, and how many of their latest episodes have kept it.';
COMMENT ON COLUMN service_levels.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN service_levels.actor_id IS 'The actor.';
COMMENT ON COLUMN service_levels.expectation_id IS 'The expectation that promises it.';
COMMENT ON COLUMN service_levels.start_s IS
    'Longest time from opening to start that is promised, in seconds. 0: any.';
COMMENT ON COLUMN service_levels.end_s IS
    'Longest time from opening to end that is promised, in seconds. 0: any.';
COMMENT ON COLUMN service_levels.success IS 'The objective: share of episodes that keep it.';
COMMENT ON COLUMN service_levels.episodes_max IS
    'The window: how many of the latest episodes are counted.';
COMMENT ON COLUMN service_levels.episodes IS 'How many there are by now.';
COMMENT ON COLUMN service_levels.met IS 'Those that kept it.';
COMMENT ON COLUMN service_levels.late_start IS 'Those that started too late.';
COMMENT ON COLUMN service_levels.failed IS 'Those that failed.';
COMMENT ON COLUMN service_levels.late_end IS 'Those that ended too late.';
COMMENT ON COLUMN service_levels.ratio IS 'Share of those that kept it, 0 to 1.';
COMMENT ON COLUMN service_levels.is_kept IS 'Whether the objective is reached.';
COMMENT ON COLUMN service_levels.start_p50_s IS 'Median time from opening to start, in seconds.';
COMMENT ON COLUMN service_levels.start_p95_s IS
    '95th percentile of the time from opening to start, in seconds.';
COMMENT ON COLUMN service_levels.end_p50_s IS 'Median time from opening to end, in seconds.';
COMMENT ON COLUMN service_levels.end_p95_s IS
    '95th percentile of the time from opening to end, in seconds.';
COMMENT ON COLUMN service_levels.since IS 'When the first of those counted ended.';
COMMENT ON COLUMN service_levels.until IS 'When the last one ended.';
COMMENT ON COLUMN service_levels.journal_seq IS
    'Sequence of the commit that last changed the row of that last one, in the journal or in its partition of it.';
