-- A projection of another layout, if the rows show any of it: `journal` or `journal-0of2` beside
-- `journal-1of4`.
-- $1 stack, $2 projection.
SELECT min(projection)
FROM projection_checkpoints
WHERE
    stack = $1
    AND journal_seq > 0
    AND split_part(projection, '-', 1) = split_part($2, '-', 1)
    AND split_part(projection, 'of', 2) <> split_part($2, 'of', 2)
