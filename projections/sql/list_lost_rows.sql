-- What the rows show of commits that their stream does not have: the newest one of each is before
-- the first that is there, or past the last. The longest ago first.
-- $1 stack, $2 kinds, $3 first sequence there, $4 last one, $5 most.
SELECT *
FROM (
    SELECT 'episode' AS kind, episode_id::text AS key, journal_seq, actor_id AS owner, status
    FROM episodes
    WHERE stack = $1
    UNION ALL
    SELECT 'output', output_key, journal_seq, actor_id, status
    FROM outputs
    WHERE stack = $1
    UNION ALL
    SELECT 'workflow', instance_id::text, journal_seq, workflow_id, status
    FROM workflow_instances
    WHERE stack = $1
    UNION ALL
    SELECT 'finding', finding_key, journal_seq, actor_id, status
    FROM findings
    WHERE stack = $1
    UNION ALL
    SELECT 'definition', kind || '.' || definition_id, journal_seq, definition_id, change
    FROM definition_history
    WHERE stack = $1
    UNION ALL
    SELECT 'dead', letter_key, journal_seq, coalesce(actor_id, ''), reason
    FROM dead_letters
    WHERE stack = $1
) AS shown
WHERE
    kind = ANY ($2::text[])
    AND (journal_seq < $3::bigint OR journal_seq > $4::bigint)
ORDER BY journal_seq, kind, key
LIMIT $5
