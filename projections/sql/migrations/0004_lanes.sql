-- Lanes: the episodes of an actor whose limits hold in the whole cluster, and their order.

CREATE TABLE lane_tickets (
    stack text NOT NULL,
    actor_id text NOT NULL,
    episode_id uuid NOT NULL,
    journal_seq bigint NOT NULL,
    expectation_id text NOT NULL,
    number bigint NOT NULL,
    priority bigint NOT NULL,
    lane_key text,
    state text NOT NULL CHECK (state IN ('waiting', 'admitted')),
    PRIMARY KEY (stack, actor_id, episode_id)
) WITH (fillfactor = 80);
COMMENT ON TABLE lane_tickets IS
    'Episodes that wait for their turn or have it, of actors whose limits hold in the whole cluster. A row goes when its episode ends, or loses its place.';
COMMENT ON COLUMN lane_tickets.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN lane_tickets.actor_id IS 'The actor whose lane it is.';
COMMENT ON COLUMN lane_tickets.episode_id IS 'The episode that has the place.';
COMMENT ON COLUMN lane_tickets.journal_seq IS
    'Sequence of the commit that last said so, in the journal or in its partition of it.';
COMMENT ON COLUMN lane_tickets.expectation_id IS 'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN lane_tickets.number IS 'In the order of the causes. Of equal priorities the lowest goes first.';
COMMENT ON COLUMN lane_tickets.priority IS 'The higher, the sooner its turn comes.';
COMMENT ON COLUMN lane_tickets.lane_key IS
    'Too many episodes of the expectation with the same key do not run at a time. Of a long one it is the hash; NULL: it has none.';
COMMENT ON COLUMN lane_tickets.state IS
    'waiting: for its turn. admitted: its turn has come, and it runs as soon as a node has room.';


CREATE VIEW queued_episodes AS
SELECT
    episode.stack, episode.episode_id, episode.actor_id, episode.expectation_id,
    turn.position, turn.priority, turn.lane_key, episode.subject_kind, episode.subject_id,
    episode.queued_at, now() - episode.queued_at AS queued_for, episode.journal_seq
FROM episodes AS episode
LEFT JOIN (
    SELECT
        stack, actor_id, episode_id, priority, lane_key,
        row_number() OVER (
            PARTITION BY stack, actor_id ORDER BY priority DESC, number
        ) AS position
    FROM lane_tickets
    WHERE state = 'waiting'
) AS turn USING (stack, actor_id, episode_id)
WHERE episode.status = 'queued';
COMMENT ON VIEW queued_episodes IS 'What waits to run, and in what order.';
COMMENT ON COLUMN queued_episodes.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN queued_episodes.episode_id IS 'The episode.';
COMMENT ON COLUMN queued_episodes.actor_id IS 'The actor that is to run.';
COMMENT ON COLUMN queued_episodes.expectation_id IS 'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN queued_episodes.position IS
    'Place among those of its actor that wait for their turn, from 1; one whose key is busy is passed over. NULL: it waits for no turn, only for a node with room.';
COMMENT ON COLUMN queued_episodes.priority IS 'The higher, the sooner its turn comes. NULL: it waits for none.';
COMMENT ON COLUMN queued_episodes.lane_key IS
    'Too many episodes of the expectation with the same key do not run at a time. NULL: it has none, or waits for no turn.';
COMMENT ON COLUMN queued_episodes.subject_kind IS 'What sort of thing it is about.';
COMMENT ON COLUMN queued_episodes.subject_id IS 'Which thing it is about.';
COMMENT ON COLUMN queued_episodes.queued_at IS 'When it was opened.';
COMMENT ON COLUMN queued_episodes.queued_for IS 'Time since it was opened.';
COMMENT ON COLUMN queued_episodes.journal_seq IS
    'Sequence of the commit that last changed the episode, in the journal or in its partition of it.';
