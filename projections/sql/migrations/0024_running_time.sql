-- What the time is that an episode has used.
COMMENT ON COLUMN episodes.wall_used_ms IS
    'How long it ran, over all attempts, in milliseconds; of branches at the same time, the time counts once. Waiting for people, events or the log does not count.';
COMMENT ON COLUMN budget_recommendations.wall_p50_s IS
    'Median of the time that they ran, in seconds.';
COMMENT ON COLUMN budget_recommendations.wall_p95_s IS
    '95th percentile of the time that they ran, in seconds.';
COMMENT ON COLUMN budget_recommendations.wall_max_s IS
    'Longest time that one of them ran, in seconds.';
COMMENT ON COLUMN budget_recommendations.wall_s IS
    'Seconds that would suit, in the same way.';
