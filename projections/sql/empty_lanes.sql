-- What is in lanes since before a commit that holds the whole lane, and sets it anew.
-- It goes by sequence, so that it may come before or after that in a batch.
-- $1 stack, $2 rows as JSON (projections/lanes.py, Emptied).
DELETE FROM lane_tickets AS ticket
USING json_to_recordset($2::json) AS emptied (actor_id text, journal_seq bigint)
WHERE ticket.stack = $1
    AND ticket.actor_id = emptied.actor_id
    AND ticket.journal_seq < emptied.journal_seq  -- guard: emptied-lane-earlier-rows
