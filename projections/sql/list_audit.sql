-- Who has signed in, who was refused, and who has changed what about people and tokens, the latest
-- first.
-- $1 stack, $2 name or NULL, $3 changes or NULL, $4 to $7 those after what happened at this time, in
-- this commit, at this place in it, to this aggregate, or NULL, $8 most.
SELECT
    person_key, change, name, person, reason, role, groups, token_id, session_id, way, address,
    agent, at, journal_seq, event_no
FROM audit
WHERE stack = $1
    AND ($2::text IS NULL OR name = $2 OR person = $2)
    AND ($3::text[] IS NULL OR change = ANY ($3))
    AND (
        $4::timestamptz IS NULL
        OR (at, journal_seq, event_no, person_key)
            < ($4, $5::bigint, $6::bigint, $7::text)  -- way
    )
ORDER BY at DESC, journal_seq DESC, event_no DESC, person_key DESC  -- way
LIMIT $8
