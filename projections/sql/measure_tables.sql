-- How large the tables are, those of other stacks too, and how many episodes this one got since a time.
-- $1 stack, $2 time.
SELECT
    (
        SELECT coalesce(sum(pg_total_relation_size(relation.oid)), 0)::bigint
        FROM pg_class AS relation
        WHERE relation.relnamespace = current_schema()::regnamespace AND relation.relkind = 'r'
    ) AS size_bytes,
    (
        SELECT count(*) FROM episodes WHERE stack = $1 AND queued_at >= $2::timestamptz
    ) AS opened
