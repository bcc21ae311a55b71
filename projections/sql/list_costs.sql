-- What requests to models have cost, the dearest first; days in order, the latest first.
-- $1 stack, $2 by what: actor, model, agent, day, finding, episode, or all, $3 those since then, or
-- NULL, $4 most, $5 those before then, or NULL.
SELECT
    name, count(*) AS requests, count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced,
    coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(cost_usd), 0) AS cost_usd,
    min(at) AS since, max(at) AS until, max(journal_seq) AS journal_seq,
    max(actor_id) AS actor_id, max(expectation_id) AS expectation_id
FROM (
    SELECT
        CASE $2::text
            WHEN 'actor' THEN request.actor_id
            WHEN 'model' THEN request.model
            WHEN 'agent' THEN request.agent
            WHEN 'day' THEN request.day::text
            WHEN 'finding' THEN touched.finding_key
            WHEN 'episode' THEN request.episode_id::text
        END AS name,
        CASE WHEN $2::text = 'episode' THEN request.actor_id END AS actor_id,
        CASE WHEN $2::text = 'episode' THEN request.expectation_id END AS expectation_id,
        request.tokens, request.cost_usd, request.at, request.journal_seq
    FROM model_requests AS request
    LEFT JOIN (
        SELECT DISTINCT stack, finding_key, episode_id
        FROM finding_events
        WHERE stack = $1 AND $2::text = 'finding'
    ) AS touched USING (stack, episode_id)
    WHERE stack = $1 AND ($3::timestamptz IS NULL OR request.at >= $3)
        AND ($5::timestamptz IS NULL OR request.at < $5)
) AS asked
GROUP BY name
ORDER BY
    CASE WHEN $2::text = 'day' THEN name END DESC,
    coalesce(sum(cost_usd), 0) DESC, sum(tokens) DESC, name
LIMIT $4
