-- Episodes whose turn has come.
-- $1 stack, $2 rows as JSON (projections/lanes.py, Admitted).
UPDATE lane_tickets AS ticket SET
    journal_seq = admitted.journal_seq,
    state = 'admitted'
FROM json_to_recordset($2::json) AS admitted (
    actor_id text, episode_id uuid, journal_seq bigint
)
WHERE ticket.stack = $1
    AND ticket.actor_id = admitted.actor_id
    AND ticket.episode_id = admitted.episode_id
