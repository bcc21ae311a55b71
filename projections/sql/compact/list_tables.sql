-- How large each table is with its indexes, how much of that no row fills by what Postgres has counted, and
-- the statements that give it back. What is out of line is not counted. Tables that were never
-- analyzed, or of whose columns the caller may not know anything, are left out; so are those that
-- have computed columns, which are small, and those with triggers, foreign keys or heirs, which are none of ours.
-- A row has a header of 24 bytes and takes 16 more for its pointer, its NULLs and what aligns it; an entry of an index
-- 24. What an index computes is taken for 32 bytes.
WITH columns AS (
    SELECT a.attrelid, a.attnum, s.avg_width * (1 - s.null_frac) AS width
    FROM pg_stats AS s
    JOIN pg_class AS c ON c.relname = s.tablename
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = s.attname
    WHERE s.schemaname = current_schema() AND c.relnamespace = current_schema()::regnamespace
), tables AS (
    SELECT
        c.oid, c.relname::text AS name, c.relowner,
        greatest(c.reltuples, 0) * (40 + sum(columns.width)) AS filled_bytes,
        coalesce(
            (
                SELECT option_value::int
                FROM pg_options_to_table(c.reloptions)
                WHERE option_name = 'fillfactor'
            ),
            100
        ) / 100.0 AS fill
    FROM pg_class AS c
    JOIN columns ON columns.attrelid = c.oid
    WHERE c.relkind = 'r' AND NOT c.relhastriggers AND NOT c.relhassubclass
        AND NOT EXISTS (
            SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attgenerated <> ''
        )
    GROUP BY c.oid
), indexes AS (
    SELECT
        i.indrelid,
        sum(
            greatest(c.reltuples, 0) * (
                24
                + coalesce(
                    (
                        SELECT sum(columns.width)
                        FROM columns
                        WHERE columns.attrelid = i.indrelid
                            AND columns.attnum = ANY (i.indkey::smallint[])
                    ),
                    0
                )
                + 32 * cardinality(array_positions(i.indkey::smallint[], 0::smallint))
            )
        ) AS filled_bytes,
        array_agg(
            format('REINDEX INDEX CONCURRENTLY %I.%I', current_schema(), c.relname)
            ORDER BY c.relname
        ) FILTER (WHERE i.indisvalid) AS remake,
        array_agg(
            format('DROP INDEX CONCURRENTLY IF EXISTS %I.%I', current_schema(), c.relname)
            ORDER BY c.relname
        ) FILTER (WHERE NOT i.indisvalid AND c.relname ~ '_cc(new|old)[0-9]*$') AS forget
    FROM pg_index AS i
    JOIN pg_class AS c ON c.oid = i.indexrelid
    GROUP BY i.indrelid
), sizes AS (
    SELECT
        tables.*,
        pg_relation_size(oid) + pg_indexes_size(oid) AS size_bytes,
        (tables.filled_bytes / fill + coalesce(indexes.filled_bytes, 0))::bigint AS taken_bytes,
        indexes.remake, indexes.forget
    FROM tables
    LEFT JOIN indexes ON indexes.indrelid = tables.oid
    WHERE pg_relation_size(oid) IS NOT NULL
)
SELECT
    name,
    size_bytes,
    greatest(size_bytes - taken_bytes, 0) AS empty_bytes,
    pg_has_role(relowner, 'USAGE') AS is_ours,
    format('VACUUM (ANALYZE) %I.%I', current_schema(), name) AS vacuum,
    -- $1 and $2: where the slice begins, and where it ends.
    format(
        'WITH taken AS (DELETE FROM %1$I.%2$I WHERE ctid >= $1 AND ctid < $2 RETURNING *), '
        'put AS (INSERT INTO %1$I.%2$I SELECT * FROM taken RETURNING ctid AS place) '
        'SELECT count(*) AS moved, count(*) FILTER (WHERE place >= $1) AS stayed FROM put',
        current_schema(), name
    ) AS move,
    coalesce(remake, '{}') AS remake,
    coalesce(forget, '{}') AS forget
FROM sizes
ORDER BY name
