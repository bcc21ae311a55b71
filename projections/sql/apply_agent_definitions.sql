-- Definitions of actors as they were last applied, with what followed as far as it is known.
-- Of a row that is there, stays when the first one was applied.
-- $1 stack, $2 rows as JSON (projections/definitions.py, Applied).
INSERT INTO agent_definitions (
    stack, actor_id, journal_seq, revision, domain, spec_rev, expectations, definition,
    applied_at, applied_by, applied_reason, first_applied_at, disabled_at, disabled_by,
    disabled_reason
)
SELECT
    $1, actor_id, journal_seq, revision, domain, spec_rev, coalesce(expectations, '{}'),
    definition, applied_at, applied_by, applied_reason, first_applied_at, disabled_at,
    disabled_by, disabled_reason
FROM json_to_recordset($2::json) AS applied (
    actor_id text, journal_seq bigint, revision bigint, domain text, spec_rev text,
    expectations text[], definition jsonb, applied_at timestamptz, applied_by text,
    applied_reason text, first_applied_at timestamptz, disabled_at timestamptz,
    disabled_by text, disabled_reason text
)
ON CONFLICT (stack, actor_id) DO UPDATE SET
    journal_seq = excluded.journal_seq,
    revision = excluded.revision,
    domain = excluded.domain,
    spec_rev = excluded.spec_rev,
    expectations = excluded.expectations,
    definition = excluded.definition,
    applied_at = excluded.applied_at,
    applied_by = excluded.applied_by,
    applied_reason = excluded.applied_reason,
    disabled_at = excluded.disabled_at,  -- guard: reapplied-forgets-disabler
    disabled_by = excluded.disabled_by,
    disabled_reason = excluded.disabled_reason
