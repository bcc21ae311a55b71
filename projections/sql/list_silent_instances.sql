-- Instances of workflows that go on, and of which nothing newer is known, the longest silent first.
-- $1 stack, $2 before when, $3 most.
SELECT instance_id, workflow_id, status, updated_at AS latest_at
FROM workflow_instances
WHERE stack = $1
    AND status IN ('running', 'stopping', 'compensating')
    AND updated_at < $2::timestamptz
ORDER BY updated_at, journal_seq
LIMIT $3
