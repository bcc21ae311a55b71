-- Instances of workflows that go on, and of which nothing newer is known, the longest silent first.
-- $1 stack, $2 before when, $3 most, $4 workflows that are left out.
-- guard: silent-blocked-listed
SELECT silent.instance_id, silent.workflow_id, silent.status, silent.updated_at AS latest_at
FROM workflow_instances AS instance
-- The view says which of those that run wait for people.
JOIN workflows AS silent USING (stack, instance_id)
WHERE instance.stack = $1
    AND instance.status IN ('running', 'stopping', 'compensating')
    AND instance.updated_at < $2::timestamptz
    AND instance.workflow_id <> ALL ($4::text[])  -- guard: silent-seen-take-no-room
ORDER BY instance.updated_at, instance.journal_seq
LIMIT $3
