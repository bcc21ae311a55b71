-- Who has signed in, who was refused, and who has changed what about people and tokens.
-- $1 stack, $2 rows as JSON (projections/people.py, AuditRow).
INSERT INTO audit (
    stack, person_key, journal_seq, event_no, change, at, person, name, reason, role, groups,
    token_id, session_id, way, address, agent
)
SELECT $1, given.*
FROM json_to_recordset($2::json) AS given (
    person_key text, journal_seq bigint, event_no bigint, change text, at timestamptz,
    person text, name text, reason text, role text, groups text[], token_id text,
    session_id text, way text, address text, agent text
)
ON CONFLICT (stack, person_key, journal_seq, event_no) DO UPDATE SET
    change = excluded.change,
    at = excluded.at,
    person = excluded.person,
    name = excluded.name,
    reason = excluded.reason,
    role = excluded.role,
    groups = excluded.groups,
    token_id = excluded.token_id,
    session_id = excluded.session_id,
    way = excluded.way,
    address = excluded.address,
    agent = excluded.agent
