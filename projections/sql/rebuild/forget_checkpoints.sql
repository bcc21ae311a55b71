-- Forgets projections of another layout of the same streams.
-- $1 stack, $2 streams, $3 the projections of this layout.
DELETE FROM projection_checkpoints
WHERE stack = $1 AND split_part(projection, '-', 1) = ANY ($2::text[]) AND projection <> ALL ($3::text[])
