-- What a rebuild does to each table whose rows have a stack, as statements: $1 of them is the stack.
-- `key` are the columns that name a row within a stack; note_touched has a statement for each
-- number of the first of them.
-- $1 the schema of the tables, $2 the schema beside it.
WITH columns AS (
    SELECT
        c.relname::text AS name, a.attname::text AS column_name,
        (
            SELECT string_agg(quote_ident(e.attname), ', ' ORDER BY e.attnum)
            FROM pg_attribute AS e
            WHERE e.attrelid = c.oid AND e.attnum > 0 AND NOT e.attisdropped AND e.attgenerated = ''
        ) AS filled,
        row_number() OVER (PARTITION BY c.oid ORDER BY a.attname <> 'stack', k.place) - 1 AS place
    FROM pg_class AS c
    JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
    CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.attnum
    WHERE
        c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
        AND c.relkind = 'r'
), tables AS (
    SELECT
        name,
        filled,
        array_agg(column_name ORDER BY place) FILTER (WHERE place > 0) AS key,
        string_agg(quote_ident(column_name), ', ' ORDER BY place) AS keys,
        string_agg(format('l.%I', column_name), ', ' ORDER BY place) AS keys_of_l,
        string_agg(format('l.%1$I = d.%1$I', column_name), ' AND ' ORDER BY place) AS same,
        format('%I.%I', $1::text, name) AS live,
        format('%I.%I', $2::text, name) AS fresh,
        format('%I.%I', $2::text, 'differing_' || name) AS differing,
        format('%I.%I', $2::text, 'replaced_' || name) AS replaced
    FROM columns
    GROUP BY name, filled
    HAVING bool_or(place = 0 AND column_name = 'stack')
), texts AS (
    SELECT
        *,
        format(
            '(SELECT DISTINCT %1$s FROM %2$s) AS d LEFT JOIN %3$s AS l USING (%1$s) LEFT JOIN %4$s AS f USING (%1$s) '
            'WHERE l IS DISTINCT FROM f',
            keys, differing, live, fresh
        ) AS still_differing
    FROM tables
)
SELECT
    name,
    key,
    -- No second index: nobody lists these rows. Not logged: a crash of the server empties all of
    -- them together, positions included.
    format(
        'CREATE UNLOGGED TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED, PRIMARY KEY (%s))',
        fresh, live, keys
    ) AS make_fresh,
    format(
        'CREATE UNLOGGED TABLE %s AS SELECT %s FROM %s WITH NO DATA', differing, keys, live
    ) AS make_differing,
    format('ANALYZE %s', fresh) AS analyze_fresh,
    format('ANALYZE %s', differing) AS analyze_differing,
    format('TRUNCATE %s', differing) AS forget_differing,
    format(
        'INSERT INTO %s SELECT %s FROM (SELECT * FROM %s WHERE stack = $1) AS l '
        'FULL JOIN %s AS f USING (%2$s) WHERE l IS DISTINCT FROM f',
        differing, keys, live, fresh
    ) AS find_differing,
    ARRAY(
        SELECT format(
            'INSERT INTO %s '
            'SELECT %s FROM %s AS l JOIN json_populate_recordset(NULL::%1$s, $2::json) AS d ON %4$s WHERE l.stack = $1 '
            'UNION '
            'SELECT %2$s FROM %5$s AS l JOIN json_populate_recordset(NULL::%1$s, $2::json) AS d ON %4$s WHERE l.stack = $1',
            differing, keys_of_l, live,
            (
                SELECT string_agg(format('l.%1$I = d.%1$I', key[i]), ' AND ' ORDER BY i)
                FROM generate_series(1, first_of) AS i
            ),
            fresh
        )
        FROM generate_series(1, cardinality(key)) AS first_of
        ORDER BY first_of
    ) AS note_touched,
    format(
        'DELETE FROM %s AS d WHERE NOT EXISTS (SELECT FROM %s AS l WHERE %s)', differing, fresh, same
    ) AS spare_missing,
    format(
        'SELECT to_jsonb(l) AS live, to_jsonb(f) AS fresh, '
        'coalesce(to_jsonb(f) ->> ''journal_seq'', to_jsonb(l) ->> ''journal_seq'')::bigint AS seq '
        'FROM %s ORDER BY seq NULLS LAST, %s LIMIT 1',
        still_differing, keys
    ) AS first_difference,
    format(
        'SELECT count(*) FILTER (WHERE l IS NULL) AS missing, '
        'count(*) FILTER (WHERE f IS NULL) AS needless, count(*) AS differing FROM %s',
        still_differing
    ) AS count_differing,
    format(
        'CREATE TABLE %s AS SELECT l.* FROM %s AND l.stack IS NOT NULL', replaced, still_differing
    ) AS keep_replaced,
    format('DELETE FROM %s AS l USING %s AS d WHERE %s', live, replaced, same) AS remove,
    format(
        'INSERT INTO %1$s (%5$s) SELECT %5$s FROM (SELECT f.* FROM (SELECT DISTINCT %2$s FROM %3$s) AS d '
        'JOIN %4$s AS f USING (%2$s) LEFT JOIN %1$s AS l USING (%2$s) WHERE l.stack IS NULL) AS f',
        live, keys, differing, fresh, filled
    ) AS put,
    format('DROP TABLE IF EXISTS %s, %s', fresh, differing) AS drop_fresh,
    format('DROP TABLE IF EXISTS %s', replaced) AS drop_replaced,
    format('ALTER TABLE %s RENAME TO %I', replaced, name) AS name_replaced
FROM texts
ORDER BY name
