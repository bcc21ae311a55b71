-- Episodes that began with the past of another one.

CREATE INDEX episodes_forked ON episodes (stack, forked_from) WHERE forked_from IS NOT NULL;

CREATE VIEW episode_forks AS
WITH RECURSIVE forked AS (
    SELECT
        stack, episode_id, forked_from, forked_at_step, forked_by, forked_reason, queued_at,
        actor_id, expectation_id, mode, status, summary, error_class, journal_seq,
        forked_from AS ancestor, 1 AS generation
    FROM episodes
    WHERE forked_from IS NOT NULL
    UNION ALL
    SELECT
        forked.stack, forked.episode_id, forked.forked_from, forked.forked_at_step,
        forked.forked_by, forked.forked_reason, forked.queued_at, forked.actor_id,
        forked.expectation_id, forked.mode, forked.status, forked.summary, forked.error_class,
        forked.journal_seq, parent.forked_from, forked.generation + 1
    FROM forked
    JOIN episodes AS parent
        ON (parent.stack, parent.episode_id) = (forked.stack, forked.ancestor)
    -- An id is computed from its cause, so no episode is its own ancestor; a bound all the same.
    WHERE parent.forked_from IS NOT NULL AND forked.generation < 100
)
SELECT DISTINCT ON (stack, episode_id)
    stack, episode_id, forked_from, ancestor AS origin, generation, forked_at_step, forked_by,
    forked_reason, queued_at AS forked_at, actor_id, expectation_id, mode, status, summary,
    error_class, journal_seq
FROM forked
ORDER BY stack, episode_id, generation DESC;
COMMENT ON VIEW episode_forks IS
    'Forks: the episode whose past each began with, the first one of the chain, and the outcome.';
COMMENT ON COLUMN episode_forks.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episode_forks.episode_id IS 'The fork.';
COMMENT ON COLUMN episode_forks.forked_from IS 'The episode whose past it began with.';
COMMENT ON COLUMN episode_forks.origin IS
    'The episode that is no fork itself: that of forked_from, or of its own, and so on.';
COMMENT ON COLUMN episode_forks.generation IS 'How many forks lead from the origin to it, from 1.';
COMMENT ON COLUMN episode_forks.forked_at_step IS 'The last step that both have.';
COMMENT ON COLUMN episode_forks.forked_by IS 'Who forked it.';
COMMENT ON COLUMN episode_forks.forked_reason IS 'Why, in words.';
COMMENT ON COLUMN episode_forks.forked_at IS 'When it was forked.';
COMMENT ON COLUMN episode_forks.actor_id IS 'The actor that it belongs to.';
COMMENT ON COLUMN episode_forks.expectation_id IS 'The expectation that it belongs to.';
COMMENT ON COLUMN episode_forks.mode IS 'live or dry_run.';
COMMENT ON COLUMN episode_forks.status IS 'Its status.';
COMMENT ON COLUMN episode_forks.summary IS 'Its conclusion, in words.';
COMMENT ON COLUMN episode_forks.error_class IS 'Why it failed: a stable class.';
COMMENT ON COLUMN episode_forks.journal_seq IS
    'Sequence of the commit that last changed its row, in the journal or in its partition of it.';
