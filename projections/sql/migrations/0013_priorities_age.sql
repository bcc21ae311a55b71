-- A priority is worth so many places in the order of the causes (PLACES_PER_PRIORITY in engine/lanes/lane.py).

CREATE OR REPLACE VIEW queued_episodes AS
SELECT
    episode.stack, episode.episode_id, episode.actor_id, episode.expectation_id,
    turn.position, turn.priority, turn.lane_key, episode.subject_kind, episode.subject_id,
    episode.queued_at, now() - episode.queued_at AS queued_for, episode.journal_seq
FROM episodes AS episode
LEFT JOIN (
    SELECT
        stack, actor_id, episode_id, priority, lane_key,
        row_number() OVER (
            PARTITION BY stack, actor_id ORDER BY number - 100 * priority, number
        ) AS position
    FROM lane_tickets
    WHERE state = 'waiting'
) AS turn USING (stack, actor_id, episode_id)
WHERE episode.status = 'queued';
COMMENT ON COLUMN queued_episodes.priority IS
    'A higher priority goes first: each is worth 100 places. NULL: it waits for no turn.';
COMMENT ON COLUMN lane_tickets.number IS
    'Position in the order of the causes. Within one priority the lowest goes first.';
COMMENT ON COLUMN lane_tickets.priority IS
    'A higher priority goes first: each is worth 100 numbers.';
COMMENT ON COLUMN episodes.priority IS
    'Where episodes wait for their turn, a higher priority goes first: each is worth 100 places.';
