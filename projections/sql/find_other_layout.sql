-- A projection of another layout, if the rows show any of it: `journal` or `journal-0of2` beside
-- `journal-1of4`; or `journal` as the source of rows of the state that no `state` has written.
-- $1 stack, $2 projection.
SELECT coalesce(
    (
        SELECT min(projection)
        FROM projection_checkpoints
        WHERE
            stack = $1
            AND journal_seq > 0
            AND split_part(projection, '-', 1) = split_part($2, '-', 1)
            AND split_part(projection, 'of', 2) <> split_part($2, 'of', 2)
    ),
    (
        SELECT 'journal'
        WHERE
            split_part($2, '-', 1) = 'state'  -- guard: journal-state-rows-kept
            AND NOT EXISTS (
                SELECT 1
                FROM projection_checkpoints
                WHERE stack = $1 AND journal_seq > 0 AND split_part(projection, '-', 1) = 'state'
            )
            AND (
                EXISTS (SELECT 1 FROM findings WHERE stack = $1)
                OR EXISTS (SELECT 1 FROM definition_history WHERE stack = $1)
                OR EXISTS (SELECT 1 FROM lane_tickets WHERE stack = $1)
            )
    )
)
