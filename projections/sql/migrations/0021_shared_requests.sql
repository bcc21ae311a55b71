-- Equal requests for approval about one subject are one request: the inbox shows the oldest of them,
-- the number of episodes, and the subject.

ALTER TABLE episode_blocks ADD COLUMN request text;
COMMENT ON COLUMN episode_blocks.request IS
    'The same for equal requests about one subject, which one decision answers. NULL: the request is not shared.';

CREATE OR REPLACE VIEW inbox AS
SELECT
    stack, kind, id, actor_id, expectation_id, summary, since, expires_at, what_to_do, journal_seq,
    CASE WHEN kind <> 'approval' THEN NULL WHEN request IS NULL THEN 1 ELSE equals END AS episodes,
    subject_kind, subject_id
FROM (
    SELECT
        block.stack, block.reason AS kind, block.episode_id::text AS id, episode.actor_id,
        episode.expectation_id,
        CASE block.reason
            WHEN 'wait' THEN 'waits for ' || block.ref
            ELSE coalesce(block.summary, left(block.plan::text, 200))
        END AS summary,
        block.blocked_at AS since, block.expires_at,
        CASE block.reason
            WHEN 'wait' THEN 'vigil episodes resolve ' || shell_word(block.ref)
            ELSE format('vigil episodes approve %s', block.episode_id)
        END AS what_to_do,
        block.journal_seq, block.request, episode.subject_kind, episode.subject_id,
        row_number() OVER equal AS place, count(*) OVER equal AS equals
    FROM episodes AS episode
    JOIN episode_blocks AS block USING (stack, episode_id)
    -- guard: ended-request-waits-for-nobody
    WHERE episode.blocked_by IN ('approval', 'wait') AND block.resolution IS NULL
    WINDOW equal AS (
        PARTITION BY block.stack, block.request
        ORDER BY block.blocked_at, block.episode_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
) AS asking
WHERE request IS NULL OR place = 1  -- guard: people-see-one-request
UNION ALL
SELECT
    output.stack, 'output', output.output_key, output.actor_id, output.expectation_id,
    coalesce(output.summary, left(output.payload::text, 200)), output.asked_at, output.expires_at,
    format('vigil outputs approve %s', shell_word(output.output_key)), output.journal_seq, NULL,
    episode.subject_kind, episode.subject_id  -- guard: inbox-names-subject
FROM outputs AS output
LEFT JOIN episodes AS episode USING (stack, episode_id)
WHERE output.status = 'awaiting_approval'
UNION ALL
SELECT
    letter.stack, 'dead_letter', letter.letter_key, letter.actor_id, episode.expectation_id,
    concat_ws(': ', letter.reason, nullif(
        CASE
            WHEN letter.output_key IS NULL THEN letter.detail
            -- The cause is on the last line of a traceback.
            ELSE left(regexp_replace(rtrim(letter.detail, E' \n'), '^.*\n', ''), 120)
        END,
        ''
    )),
    letter.lettered_at, NULL,
    CASE
        WHEN letter.output_key IS NULL THEN 'vigil dead show ' || shell_word(letter.letter_key)
        -- Whoever would try it again is refused.
        WHEN output.status <> 'failed' THEN  -- guard: gone-on-letter-not-retried
            'vigil dead discard --reason ''its output has gone on'' '
            || shell_word(letter.letter_key)
        ELSE 'vigil outputs retry ' || shell_word(letter.output_key)
    END,
    letter.journal_seq, NULL, episode.subject_kind, episode.subject_id
FROM dead_letters AS letter
LEFT JOIN episodes AS episode USING (stack, episode_id)
LEFT JOIN outputs AS output USING (stack, output_key)
WHERE letter.status = 'waiting'
UNION ALL
SELECT
    step.stack, 'workflow_step', step.instance_id::text, 'workflow-' || instance.workflow_id,
    step.step_id,
    CASE step.status
        WHEN 'paused' THEN concat_ws(
            ': ', format('step %s has failed', step.step_id), step.error_class, step.error_detail
        )
        ELSE coalesce(step.summary, format('step %s is to be approved', step.step_id))
    END,
    CASE step.status WHEN 'paused' THEN step.finished_at ELSE step.asked_at END,
    CASE step.status WHEN 'paused' THEN NULL ELSE step.expires_at END,
    CASE step.status
        WHEN 'paused' THEN format(
            'vigil workflows resume %s %s --retry', step.instance_id, step.step_id
        )
        ELSE format('vigil workflows approve %s %s', step.instance_id, step.step_id)
    END,
    step.journal_seq, NULL, NULL, instance.subject_value
FROM workflow_steps AS step
JOIN workflow_instances AS instance USING (stack, instance_id)
WHERE step.status IN ('awaiting_approval', 'paused')
ORDER BY since;
COMMENT ON COLUMN inbox.episodes IS
    'Of an approval of an episode: the number of equal requests, which one decision answers. NULL: of all other kinds.';
COMMENT ON COLUMN inbox.subject_kind IS
    'The subject key of the expectation. NULL: it has none, or it is a step of a workflow.';
COMMENT ON COLUMN inbox.subject_id IS 'The subject. NULL: it has none.';
