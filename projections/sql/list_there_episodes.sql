-- Which of some episodes are there.
-- $1 stack, $2 their ids.
SELECT episode_id::text AS id, 0::bigint AS number FROM episodes
WHERE stack = $1 AND episode_id = ANY ($2::text[]::uuid[])
