-- An episode and what led to it, step by step. $1 stack, $2 episode, $3 most steps.
-- A fork was led to by the other episode; a child, by its parent; an item of a workflow, by what the
-- instance was; any other, by the episode that its event tells of, if the engine made the event.
WITH RECURSIVE chain AS (
    SELECT 0 AS depth, episode.* FROM episodes AS episode WHERE stack = $1 AND episode_id = $2
    UNION ALL
    SELECT chain.depth + 1, cause.*
    FROM chain
    CROSS JOIN LATERAL (
        SELECT
            CASE chain.trigger_type WHEN 'workflow' THEN (
                SELECT instance.trigger_ref
                FROM workflow_instances AS instance
                WHERE instance.stack = $1 AND instance.instance_id = chain.workflow_instance_id
            ) ELSE chain.trigger_ref END AS trigger
    ) AS led
    CROSS JOIN LATERAL (
        SELECT
            -- guard: cause-by-event-of-engine
            CASE WHEN (led.trigger ->> 'hops')::bigint > 0
                THEN substring(
                    led.trigger -> 'payload' ->> 'episode_id'
                    FROM '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'
                )::uuid
            END AS told
    ) AS event
    JOIN episodes AS cause
        ON cause.stack = $1
            AND cause.episode_id = coalesce(chain.forked_from, chain.parent_id, event.told)
    WHERE chain.depth < $3
) CYCLE episode_id SET is_cycle USING path
SELECT
    depth, episode_id, actor_id, expectation_id, status, trigger_type,
    trigger_ref ->> 'event_type' AS event, trigger_ref ->> 'event_id' AS event_id, opened_by,
    workflow_id, workflow_instance_id, parent_id, forked_from, subject_kind, subject_id, summary,
    queued_at, journal_seq
FROM chain
WHERE NOT is_cycle
ORDER BY depth
