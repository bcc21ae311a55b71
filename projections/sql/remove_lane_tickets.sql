-- Episodes that have no place in their lane any more: they ended, or lost it.
-- $1 stack, $2 rows as JSON (projections/lanes.py, Gone).
DELETE FROM lane_tickets AS ticket
USING json_to_recordset($2::json) AS gone (actor_id text, episode_id uuid)
WHERE ticket.stack = $1
    AND ticket.actor_id = gone.actor_id
    AND ticket.episode_id = gone.episode_id
