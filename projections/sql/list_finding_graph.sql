-- A finding, what explains it, and what it explains, each with what the episodes that raised or
-- changed it have cost. $1 stack, $2 key, $3 most steps each way, $4 most findings.
WITH RECURSIVE explained AS (
    SELECT finding_key, caused_by_key, 0 AS depth
    FROM findings
    WHERE stack = $1 AND finding_key = $2 AND status <> 'superseded'
    UNION ALL
    SELECT cause.finding_key, cause.caused_by_key, explained.depth - 1
    FROM explained
    JOIN findings AS cause
        ON cause.stack = $1 AND cause.finding_key = explained.caused_by_key
    WHERE cause.status <> 'superseded' AND explained.depth > -$3::integer
) CYCLE finding_key SET is_cycle USING path,
explains AS (
    SELECT finding_key, 0 AS depth FROM explained WHERE depth = 0
    UNION ALL
    SELECT effect.finding_key, explains.depth + 1
    FROM explains
    JOIN findings AS effect
        ON effect.caused_by_key = explains.finding_key
    WHERE effect.stack = $1 AND effect.status <> 'superseded' AND explains.depth < $3::integer
) CYCLE finding_key SET is_cycle USING path,
places AS (
    SELECT DISTINCT ON (finding_key) finding_key, depth
    FROM (
        -- Postgres goes no further than to the last row that is taken.
        (SELECT finding_key, depth FROM explained WHERE NOT is_cycle LIMIT $4)
        UNION ALL
        (SELECT finding_key, depth FROM explains WHERE NOT is_cycle LIMIT $4)
    ) AS found
    ORDER BY finding_key, abs(depth)
),
touched AS (
    SELECT DISTINCT places.finding_key, episode.episode_id, episode.cost_usd
    FROM places
    JOIN finding_events AS change
        ON change.stack = $1 AND change.finding_key = places.finding_key
    JOIN episodes AS episode
        ON episode.stack = $1 AND episode.episode_id = change.episode_id
)
SELECT
    places.depth, finding.finding_key, finding.status, finding.severity, finding.summary,
    finding.caused_by_key, own.episodes, own.cost_usd,
    (
        SELECT coalesce(sum(each.cost_usd), 0)
        FROM (SELECT DISTINCT episode_id, cost_usd FROM touched) AS each
    ) AS cost_usd_of_all,
    finding.journal_seq
FROM places
JOIN findings AS finding
    ON finding.stack = $1 AND finding.finding_key = places.finding_key
        AND finding.status <> 'superseded'
CROSS JOIN LATERAL (
    SELECT count(*) AS episodes, coalesce(sum(touched.cost_usd), 0) AS cost_usd
    FROM touched
    WHERE touched.finding_key = finding.finding_key
) AS own
ORDER BY abs(places.depth), finding.raised_at, finding.finding_key
LIMIT $4
