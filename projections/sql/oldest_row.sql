-- When the oldest thing began that the tables have of the journal. NULL: they have none.
-- $1 stack.
SELECT least(
    (SELECT min(queued_at) FROM episodes WHERE stack = $1),
    (SELECT min(created_at) FROM outputs WHERE stack = $1),
    (SELECT min(started_at) FROM workflow_instances WHERE stack = $1)
) AS began_at
