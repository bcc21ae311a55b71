-- Deletes episodes with all that only they have, in one statement: nobody sees a part of one.
-- $1 stack, $2 their ids.
WITH gone AS (
    DELETE FROM episodes
    WHERE stack = $1 AND episode_id = ANY ($2::text[]::uuid[])
    RETURNING episode_id, actor_id
), attempts AS (
    DELETE FROM episode_attempts
    WHERE stack = $1 AND episode_id = ANY ($2::text[]::uuid[])
    RETURNING 1
), steps AS (
    DELETE FROM episode_steps
    WHERE stack = $1 AND episode_id = ANY ($2::text[]::uuid[])
    RETURNING 1
), checkpoints AS (
    DELETE FROM episode_checkpoints
    WHERE stack = $1 AND episode_id = ANY ($2::text[]::uuid[])
    RETURNING 1
), blocks AS (
    DELETE FROM episode_blocks
    WHERE stack = $1 AND episode_id = ANY ($2::text[]::uuid[])
    RETURNING 1
), claims AS (
    DELETE FROM work_claims
    USING gone
    WHERE stack = $1 AND state <> 'claimed'
        AND dedupe_key = format('episode.%s.%s', gone.actor_id, gone.episode_id)
    RETURNING 1
)
SELECT 'episodes' AS what, count(*) AS count FROM gone
UNION ALL
SELECT 'episode_attempts', count(*) FROM attempts
UNION ALL
SELECT 'episode_steps', count(*) FROM steps
UNION ALL
SELECT 'episode_checkpoints', count(*) FROM checkpoints
UNION ALL
SELECT 'episode_blocks', count(*) FROM blocks
UNION ALL
SELECT 'work_claims', count(*) FROM claims
