-- Episodes of an actor that have not ended, the oldest first.
-- $1 stack, $2 actor, $3 expectation or NULL, $4 status, parked or NULL, $5 and $6 those after the episode
-- that was queued at this time with this id, or NULL, $7 most.
SELECT episode_id, actor_id, expectation_id, status, queued_at
FROM episodes
WHERE stack = $1
    AND actor_id = $2
    AND status IN ('queued', 'running', 'blocked')
    AND ($3::text IS NULL OR expectation_id = $3)
    AND (
        $4::text IS NULL OR status = $4
        OR ($4 = 'parked' AND blocked_by = 'nondeterministic_replay')
    )
    AND ($5::timestamptz IS NULL OR (queued_at, episode_id) > ($5, $6::uuid))
ORDER BY queued_at, episode_id
LIMIT $7
