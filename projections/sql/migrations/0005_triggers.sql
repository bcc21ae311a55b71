-- What woke an episode, whether it is meant, and who is to run it.
-- Not its overrides: they stand for results, which may be redacted where the rows show them.

ALTER TABLE episodes
    ADD COLUMN mode text NOT NULL DEFAULT 'live' CHECK (mode IN ('live', 'dry_run')),
    ADD COLUMN priority bigint NOT NULL DEFAULT 0,
    ADD COLUMN opened_by text,
    ADD COLUMN is_request boolean NOT NULL DEFAULT false,
    ADD COLUMN start_by timestamptz;
COMMENT ON COLUMN episodes.trigger_type IS 'What woke it: event, schedule, manual or workflow.';
COMMENT ON COLUMN episodes.trigger_ref IS
    'The trigger in full; payload (of a workflow: input) holds what it said.';
COMMENT ON COLUMN episodes.mode IS
    'live, or dry_run: it is not meant, and changed nothing outside.';
COMMENT ON COLUMN episodes.priority IS
    'The higher, the sooner its turn comes, where episodes wait for one.';
COMMENT ON COLUMN episodes.opened_by IS
    'The node whose gate its trigger passed. NULL: a person had it opened.';
COMMENT ON COLUMN episodes.is_request IS
    'Whether that node only asked for it, and left running it to others.';
COMMENT ON COLUMN episodes.start_by IS
    'Not begun by then, it is canceled as expired. NULL: it waits for as long as it takes.';

CREATE INDEX episodes_requested ON episodes (stack, queued_at DESC) WHERE is_request;


CREATE VIEW trigger_requests AS
SELECT
    stack, episode_id, actor_id, expectation_id, opened_by AS source_node,
    stack AS source_stack,
    CASE
        WHEN status = 'canceled' AND error_class = 'expired' THEN 'expired'
        WHEN finished_at IS NOT NULL THEN 'completed'
        WHEN started_at IS NOT NULL THEN 'claimed'
        ELSE 'pending'
    END AS status,
    node AS claimed_by, started_at AS claimed_at, queued_at AS requested_at, journal_seq
FROM episodes
WHERE is_request;
COMMENT ON VIEW trigger_requests IS
    'Episodes that one node asked for and left to others to run, and what became of them.';
COMMENT ON COLUMN trigger_requests.stack IS 'The cluster it belongs to.';
COMMENT ON COLUMN trigger_requests.episode_id IS 'The episode that was asked for.';
COMMENT ON COLUMN trigger_requests.actor_id IS 'The actor that is to run.';
COMMENT ON COLUMN trigger_requests.expectation_id IS
    'Which of the actor''s expectations was triggered.';
COMMENT ON COLUMN trigger_requests.source_node IS 'The node that asked.';
COMMENT ON COLUMN trigger_requests.source_stack IS 'The cluster that the node is of.';
COMMENT ON COLUMN trigger_requests.status IS
    'pending (no node has begun), claimed (one has), completed (it has ended, however) or expired (not begun in time).';
COMMENT ON COLUMN trigger_requests.claimed_by IS 'The node that runs it, or ran it last.';
COMMENT ON COLUMN trigger_requests.claimed_at IS 'When a node first began.';
COMMENT ON COLUMN trigger_requests.requested_at IS 'When it was asked for.';
COMMENT ON COLUMN trigger_requests.journal_seq IS
    'Sequence of the commit that last changed the episode, in the journal or in its partition of it.';
