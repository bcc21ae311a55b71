-- What each table, view and column contains, in plain words. Only comments change.

COMMENT ON TABLE episodes IS
    'Runs of actors: what triggered them, their progress, their conclusion. One row each.';
COMMENT ON COLUMN episodes.blocked_by IS
    'What it waits for while it is blocked: approval (people), wait (an event from another system) or outputs (a later delivery or approval of its own outputs).';
COMMENT ON COLUMN episodes.budget IS
    'Its limits: turns, tokens, wall_s (seconds). 0 or less: no limit.';
COMMENT ON COLUMN episodes.classification IS 'The conclusion of the strategy.';
COMMENT ON COLUMN episodes.dedupe_key IS 'Triggers with the same key open one episode.';
COMMENT ON COLUMN episodes.definition_revision IS
    'Revision of its actor''s definition when it was opened. NULL: the actor is declared in code.';
COMMENT ON COLUMN episodes.episode_id IS
    'Computed from its cause: the same cause is the same episode.';
COMMENT ON COLUMN episodes.generation IS
    '0 for the first episode of a cause, and 1 more each time a person requeues it.';
COMMENT ON COLUMN episodes.is_request IS
    'Whether that node opened it as a request, for other nodes to run.';
COMMENT ON COLUMN episodes.mode IS 'live, or dry_run: a rehearsal without effects outside.';
COMMENT ON COLUMN episodes.opened_by IS 'The node that opened it. NULL: a person fired it by hand.';
COMMENT ON COLUMN episodes.outputs IS
    'The results of its outputs: for each its output_key, its outcome (delivered, failed, rejected, canceled, duplicate of another episode''s, dry_run) and an error_class. NULL: there is no result yet.';
COMMENT ON COLUMN episodes.priority IS
    'Where episodes wait for their turn, a higher priority goes first.';
COMMENT ON COLUMN episodes.spec_rev IS
    'The spec_rev of its actor when it was opened. NULL: the actor declares none.';
COMMENT ON COLUMN episodes.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episodes.start_by IS
    'If no node has started it by then, it is canceled as expired. NULL: no deadline.';
COMMENT ON COLUMN episodes.status IS
    'queued, running, blocked (it waits, and no node runs it), or how it ended: done, failed, partially_failed, canceled.';
COMMENT ON COLUMN episodes.subject_id IS
    'The value at the subject key in the trigger''s payload: which thing the episode is about.';
COMMENT ON COLUMN episodes.subject_kind IS
    'The expectation''s subject key: what kind of thing the episode is about.';
COMMENT ON COLUMN episodes.summary IS 'The conclusion of the strategy in words.';
COMMENT ON COLUMN episodes.trigger_ref IS
    'The trigger in full; payload (of a workflow: input) is the payload of the event.';
COMMENT ON COLUMN episodes.trigger_type IS
    'What triggered it: event, schedule, manual or workflow.';

COMMENT ON TABLE episode_steps IS
    'The steps of episodes.';
COMMENT ON COLUMN episode_steps.args_redacted IS 'Its arguments, without secrets.';
COMMENT ON COLUMN episode_steps.cost_ms IS 'Its duration, in milliseconds.';
COMMENT ON COLUMN episode_steps.result IS 'Its result, as redacted for people.';
COMMENT ON COLUMN episode_steps.side_effect_key IS
    'The idempotency key that was passed to the tool.';
COMMENT ON COLUMN episode_steps.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episode_steps.state IS
    'announced: a side effect was about to be made, and its outcome is not recorded. recorded: done.';

COMMENT ON TABLE episode_checkpoints IS
    'Checkpoints of strategies. The states themselves are only on the journal, because they may contain values that are redacted here.';
COMMENT ON COLUMN episode_checkpoints.checkpoint_no IS 'Number of the checkpoint in the episode.';
COMMENT ON COLUMN episode_checkpoints.phase IS 'The strategy''s name for it.';
COMMENT ON COLUMN episode_checkpoints.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episode_checkpoints.step_no IS
    'The step that saved it; a resumed episode continues after it.';

COMMENT ON TABLE episode_blocks IS
    'What episodes waited for: requests for approval, and events from other systems.';
COMMENT ON COLUMN episode_blocks.approvers IS 'Who may decide; empty: anybody.';
COMMENT ON COLUMN episode_blocks.blocked_at IS 'When it started waiting.';
COMMENT ON COLUMN episode_blocks.decision_id IS 'Id of the request that made the decision.';
COMMENT ON COLUMN episode_blocks.expires_at IS 'Until when it can be answered. NULL: no limit.';
COMMENT ON COLUMN episode_blocks.on_expiry IS
    'What happens if nobody answers in time: deny, approve, continue or fail.';
COMMENT ON COLUMN episode_blocks.plan IS 'What people were asked to approve.';
COMMENT ON COLUMN episode_blocks.plan_hash IS
    'SHA-256 of the plan, in hex; a decision names it. NULL for a wait.';
COMMENT ON COLUMN episode_blocks.reason IS
    'approval (a request to people) or wait (for an event from another system).';
COMMENT ON COLUMN episode_blocks.ref IS 'The reference that is waited for. NULL for an approval.';
COMMENT ON COLUMN episode_blocks.resolution IS
    'How it ended: approved, denied, resolved (the event has come) or expired. NULL: it still waits.';
COMMENT ON COLUMN episode_blocks.resolved_by IS 'Who answered. NULL: nobody.';
COMMENT ON COLUMN episode_blocks.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN episode_blocks.step_no IS 'The step whose result is the answer.';

COMMENT ON TABLE finding_events IS
    'The history of findings, in order, with the values from then on.';
COMMENT ON COLUMN finding_events.confidence IS 'Its confidence after it.';
COMMENT ON COLUMN finding_events.episode_id IS
    'The episode that caused it. NULL: a person did, or a timer.';
COMMENT ON COLUMN finding_events.event_no IS 'Position within that commit, from 0.';
COMMENT ON COLUMN finding_events.evidence_refs IS 'Its evidence after it.';
COMMENT ON COLUMN finding_events.expires_at IS 'When the finding expires, after it.';
COMMENT ON COLUMN finding_events.finding_key IS 'The finding.';
COMMENT ON COLUMN finding_events.from_severity IS 'Its severity before an escalation.';
COMMENT ON COLUMN finding_events.journal_seq IS
    'Sequence of its commit, in the journal or in its partition of it.';
COMMENT ON COLUMN finding_events.person IS 'The person who did it. NULL: an episode or a timer.';
COMMENT ON COLUMN finding_events.reason IS
    'Why it was cleared or acknowledged, or the text of the note.';
COMMENT ON COLUMN finding_events.severity IS 'Its severity after it.';
COMMENT ON COLUMN finding_events.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN finding_events.status IS 'The finding''s status after it.';
COMMENT ON COLUMN finding_events.summary IS 'Its summary after it.';

COMMENT ON TABLE work_claims IS
    'Which node works on what. Filled from the claims bucket, which keeps no history: unlike the other tables it cannot be rebuilt in full.';
COMMENT ON COLUMN work_claims.attempt IS 'The number of the attempt, from 1.';
COMMENT ON COLUMN work_claims.dedupe_key IS 'What is claimed; it has one owner at a time.';
COMMENT ON COLUMN work_claims.finished_at IS 'When it ended, or when a projector noticed that.';
COMMENT ON COLUMN work_claims.lease_until IS
    'When the lease expires unless it is renewed, by the owner''s clock; the server''s own timer decides.';
COMMENT ON COLUMN work_claims.stack IS 'The stack that it belongs to.';

COMMENT ON TABLE dead_letters IS
    'Messages, episodes and outputs that could not be processed, with the reason, until a person decides.';
COMMENT ON COLUMN dead_letters.actor_id IS 'The actor whose message it is.';
COMMENT ON COLUMN dead_letters.episode_id IS 'The episode that failed, if it is about one.';
COMMENT ON COLUMN dead_letters.letter_key IS 'Its identity: source and cause.';
COMMENT ON COLUMN dead_letters.output_key IS
    'The output that failed. NULL: it is about something else.';
COMMENT ON COLUMN dead_letters.payload IS 'The original message, truncated if it is very long.';
COMMENT ON COLUMN dead_letters.settled_by IS
    'Who decided: a person, or the actor whose episode has proposed the output again.';
COMMENT ON COLUMN dead_letters.settled_note IS
    'The event''s sequence or the episode that it was requeued as; or why it was discarded.';
COMMENT ON COLUMN dead_letters.source_stream IS 'The stream of the rejected message.';
COMMENT ON COLUMN dead_letters.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN dead_letters.status IS
    'waiting for a person, requeued (tried again) or discarded.';

COMMENT ON TABLE projection_checkpoints IS
    'How far the rows have come; updated in the same transaction as the rows.';
COMMENT ON COLUMN projection_checkpoints.journal_seq IS
    'The rows contain everything up to this sequence (for claims: revision).';
COMMENT ON COLUMN projection_checkpoints.mark IS
    'Identifies the commit at that sequence, so that another journal is not mistaken for this one.';
COMMENT ON COLUMN projection_checkpoints.projection IS
    'What it follows: journal, dead or claims; journal-0of4 is one of four partitions of a journal.';
COMMENT ON COLUMN projection_checkpoints.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN projection_checkpoints.trouble IS
    'Why the projection has stopped. NULL: it has not.';
COMMENT ON COLUMN projection_checkpoints.updated_at IS 'When it was last updated.';

COMMENT ON TABLE lane_tickets IS
    'Episodes that wait for their turn or have it, of actors with limits for the whole cluster. A row is deleted when its episode ends, or loses its place.';
COMMENT ON COLUMN lane_tickets.journal_seq IS
    'Sequence of the commit that last changed the row, in the journal or in its partition of it.';
COMMENT ON COLUMN lane_tickets.lane_key IS
    'The value of the concurrency key, or its hash if it is long: the number of episodes that run with one value is limited. NULL: no key.';
COMMENT ON COLUMN lane_tickets.number IS
    'Position in the order of the causes. Within one priority the lowest goes first.';
COMMENT ON COLUMN lane_tickets.priority IS 'A higher priority goes first.';
COMMENT ON COLUMN lane_tickets.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN lane_tickets.state IS
    'waiting: for its turn. admitted: it runs as soon as a node has a free slot.';

COMMENT ON TABLE outputs IS
    'What episodes deliver to the outside, as it was last proposed. One row for each key.';
COMMENT ON COLUMN outputs.adapter IS 'The name of its adapter in the app.';
COMMENT ON COLUMN outputs.approvers IS 'Who may approve it; empty: anybody.';
COMMENT ON COLUMN outputs.asked_at IS
    'When approval was last requested. NULL: it needs no approval.';
COMMENT ON COLUMN outputs.attempts IS 'Calls of the adapter for this proposal.';
COMMENT ON COLUMN outputs.decided_by IS 'Who decided. NULL: nobody.';
COMMENT ON COLUMN outputs.decision_id IS 'Id of the request that made the decision.';
COMMENT ON COLUMN outputs.delivered_ref IS 'The receiver''s reference for it.';
COMMENT ON COLUMN outputs.error_class IS
    'Why the last attempt failed: a stable class. NULL: it did not fail, or another one is under way.';
COMMENT ON COLUMN outputs.expires_at IS 'Until when it can be approved. NULL: no limit.';
COMMENT ON COLUMN outputs.next_attempt_at IS
    'Time of the next attempt, at the earliest. NULL: none is scheduled.';
COMMENT ON COLUMN outputs.on_expiry IS
    'What happens if nobody decides in time: deny, approve or fail.';
COMMENT ON COLUMN outputs.output_key IS 'Its identity: outputs with the same key are the same.';
COMMENT ON COLUMN outputs.proposal_no IS
    'From 1; grows when the key is proposed again, after it failed, was canceled, or was not approved in time.';
COMMENT ON COLUMN outputs.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN outputs.status IS
    'awaiting_approval, proposed (to be delivered), delivered, failed (for good, unless a person retries it), rejected (denied, or not approved in time) or canceled (alone, or with its episode).';
COMMENT ON COLUMN outputs.summary IS 'One sentence for its approvers.';
COMMENT ON COLUMN outputs.updated_at IS 'When it was last changed.';

COMMENT ON TABLE output_events IS
    'The history of outputs, in order: every decision and every attempt.';
COMMENT ON COLUMN output_events.attempt IS 'Number of the attempt at its proposal, from 1.';
COMMENT ON COLUMN output_events.delivered_ref IS 'The receiver''s reference for it.';
COMMENT ON COLUMN output_events.episode_id IS
    'The episode that proposes it. NULL: it is no proposal.';
COMMENT ON COLUMN output_events.event_no IS 'Position within that commit, from 0.';
COMMENT ON COLUMN output_events.journal_seq IS
    'Sequence of its commit, in the journal or in its partition of it.';
COMMENT ON COLUMN output_events.next_attempt_at IS 'Time of the next attempt, at the earliest.';
COMMENT ON COLUMN output_events.output_key IS 'The output.';
COMMENT ON COLUMN output_events.person IS
    'Who decided, retried or canceled it; NULL of a decision: it expired.';
COMMENT ON COLUMN output_events.proposal_no IS 'Number of a new proposal. NULL: it is no proposal.';
COMMENT ON COLUMN output_events.stack IS 'The stack that it belongs to.';

COMMENT ON TABLE workflow_instances IS
    'Instances of workflows, one row each.';
COMMENT ON COLUMN workflow_instances.canceled_by IS 'Who canceled it. NULL: nobody.';
COMMENT ON COLUMN workflow_instances.dedupe_key IS 'Triggers with the same key start one instance.';
COMMENT ON COLUMN workflow_instances.definition_revision IS
    'Revision of the definition that it was started under, and keeps. NULL: the workflow is declared in code.';
COMMENT ON COLUMN workflow_instances.depth IS 'Number of instances that it is nested in.';
COMMENT ON COLUMN workflow_instances.error_class IS 'Why it failed: a stable class.';
COMMENT ON COLUMN workflow_instances.error_detail IS 'Why it failed, in words.';
COMMENT ON COLUMN workflow_instances.failed_step IS
    'The step that made it fail. NULL: it did not fail, or took too long.';
COMMENT ON COLUMN workflow_instances.instance_id IS
    'Computed from its cause: the same cause is the same instance.';
COMMENT ON COLUMN workflow_instances.mode IS
    'live, or dry_run: a rehearsal without effects outside.';
COMMENT ON COLUMN workflow_instances.not_undone IS 'Steps that were done and could not be undone.';
COMMENT ON COLUMN workflow_instances.parent_instance_id IS
    'The instance that it is a step of. NULL: none.';
COMMENT ON COLUMN workflow_instances.parent_step_id IS 'The step of that instance. NULL: none.';
COMMENT ON COLUMN workflow_instances.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN workflow_instances.started_at IS 'When it started.';
COMMENT ON COLUMN workflow_instances.status IS
    'running, stopping (running steps are being canceled), compensating (finished steps are being undone), or how it ended: done, failed, canceled. The view workflows also has blocked.';
COMMENT ON COLUMN workflow_instances.subject_value IS
    'What it is about. NULL: nothing in particular.';
COMMENT ON COLUMN workflow_instances.trigger_ref IS
    'The trigger in full; payload (of a workflow: input) is the payload of the event.';
COMMENT ON COLUMN workflow_instances.trigger_type IS
    'What started it: event, schedule, manual or workflow (it is a step of another one).';
COMMENT ON COLUMN workflow_instances.updated_at IS 'When it was last changed.';

COMMENT ON TABLE workflow_steps IS
    'Steps of instances of workflows: one row for each item of a step that fans out, and one for any other step.';
COMMENT ON COLUMN workflow_steps.approvers IS 'Who may approve it; empty: anybody.';
COMMENT ON COLUMN workflow_steps.asked_at IS 'When approval was requested.';
COMMENT ON COLUMN workflow_steps.attempts IS 'Attempts so far, the current one included.';
COMMENT ON COLUMN workflow_steps.compensation_status IS
    'Status of the newest attempt to undo it: running, done, failed or canceled. NULL: there was none.';
COMMENT ON COLUMN workflow_steps.decided_by IS 'Who decided. NULL: nobody.';
COMMENT ON COLUMN workflow_steps.error_class IS
    'Why the newest attempt failed: a stable class. NULL: it did not, or is running.';
COMMENT ON COLUMN workflow_steps.expires_at IS 'Until when it can be approved. NULL: no limit.';
COMMENT ON COLUMN workflow_steps.input IS 'Its input. NULL: not known yet.';
COMMENT ON COLUMN workflow_steps.item IS 'Number of the item, from 0.';
COMMENT ON COLUMN workflow_steps.plan_hash IS
    'SHA-256 of what people were asked to approve, in hex; a decision names it. NULL: no approval.';
COMMENT ON COLUMN workflow_steps.result IS 'Its result, for the steps that depend on it.';
COMMENT ON COLUMN workflow_steps.retry_at IS
    'Time of the next attempt, at the earliest. NULL: none is scheduled.';
COMMENT ON COLUMN workflow_steps.reused_episode_id IS
    'The earlier episode whose result is reused for this item. NULL: none.';
COMMENT ON COLUMN workflow_steps.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN workflow_steps.started_at IS 'When the newest attempt started.';
COMMENT ON COLUMN workflow_steps.status IS
    'pending, awaiting_approval, running, failed (for good), retrying (later), paused (until a person decides), done, skipped or canceled.';
COMMENT ON COLUMN workflow_steps.summary IS 'The request in one sentence.';

COMMENT ON TABLE definition_history IS
    'The history of definitions, in order: every revision that was ever applied, in full.';
COMMENT ON COLUMN definition_history.definition IS
    'The applied definition in full. NULL: it was disabled.';
COMMENT ON COLUMN definition_history.event_no IS 'Position within that commit, from 0.';
COMMENT ON COLUMN definition_history.journal_seq IS
    'Sequence of its commit, in the journal or in its partition of it.';
COMMENT ON COLUMN definition_history.person IS 'Who did it.';
COMMENT ON COLUMN definition_history.revision IS
    'The revision that was applied, or that was in effect when it was disabled.';
COMMENT ON COLUMN definition_history.stack IS 'The stack that it belongs to.';

COMMENT ON VIEW active_findings IS
    'Findings that are active now.';
COMMENT ON COLUMN active_findings.acknowledged_at IS 'When it was acknowledged.';
COMMENT ON COLUMN active_findings.acknowledged_by IS 'The person who acknowledged it.';
COMMENT ON COLUMN active_findings.class IS 'What kind of finding it is.';
COMMENT ON COLUMN active_findings.escalated_to IS
    'The severity that it was escalated to, which is its minimum from then on.';
COMMENT ON COLUMN active_findings.evidence_refs IS 'The evidence for it.';
COMMENT ON COLUMN active_findings.expires_at IS
    'When it expires unless it is raised, updated or cleared before. NULL: never.';
COMMENT ON COLUMN active_findings.finding_key IS 'Its identity.';
COMMENT ON COLUMN active_findings.severity IS 'How bad it is: low < medium < high < critical.';
COMMENT ON COLUMN active_findings.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN active_findings.subject_kind IS 'The kind of thing that it is about.';
COMMENT ON COLUMN active_findings.summary IS 'The observation in words.';

COMMENT ON VIEW running_episodes IS
    'Episodes that are running now, and their nodes.';
COMMENT ON COLUMN running_episodes.budget IS 'Its limits: turns, tokens, wall_s (seconds).';
COMMENT ON COLUMN running_episodes.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN running_episodes.subject_kind IS 'The kind of thing that it is about.';

COMMENT ON VIEW queued_episodes IS
    'Episodes that wait to run, in their order.';
COMMENT ON COLUMN queued_episodes.lane_key IS
    'The value of the concurrency key: the number of episodes that run with one value is limited. NULL: no key, or it waits for no turn.';
COMMENT ON COLUMN queued_episodes.position IS
    'Position among the episodes of its actor that wait for their turn, from 1; one whose concurrency key is busy is passed over. NULL: it only waits for a node with a free slot.';
COMMENT ON COLUMN queued_episodes.priority IS
    'A higher priority goes first. NULL: it waits for no turn.';
COMMENT ON COLUMN queued_episodes.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN queued_episodes.subject_kind IS 'The kind of thing that it is about.';

COMMENT ON VIEW trigger_requests IS
    'Episodes that one node opened and left to other nodes to run, and their outcome.';
COMMENT ON COLUMN trigger_requests.claimed_at IS 'When a node first started it.';
COMMENT ON COLUMN trigger_requests.episode_id IS 'The requested episode.';
COMMENT ON COLUMN trigger_requests.requested_at IS 'When it was requested.';
COMMENT ON COLUMN trigger_requests.source_node IS 'The node that opened it.';
COMMENT ON COLUMN trigger_requests.source_stack IS 'The stack of that node.';
COMMENT ON COLUMN trigger_requests.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN trigger_requests.status IS
    'pending (no node has started it), claimed (a node has), completed (it has ended, in any way) or expired (not started in time).';

COMMENT ON VIEW approvals IS
    'Requests for approval, of episodes and of outputs, and their decisions.';
COMMENT ON COLUMN approvals.approvers IS 'Who may decide; empty: anybody.';
COMMENT ON COLUMN approvals.decided_by IS 'Who decided. NULL: nobody.';
COMMENT ON COLUMN approvals.expires_at IS 'Until when it can be decided. NULL: no limit.';
COMMENT ON COLUMN approvals.kind IS
    'episode (approval of its next step) or output (approval of a delivery).';
COMMENT ON COLUMN approvals.on_expiry IS
    'What happens if nobody decides in time: deny, approve or fail.';
COMMENT ON COLUMN approvals.plan IS 'What is to be done, or delivered.';
COMMENT ON COLUMN approvals.plan_hash IS 'SHA-256 of the plan, in hex; a decision names it.';
COMMENT ON COLUMN approvals.requested_at IS 'When approval was last requested.';
COMMENT ON COLUMN approvals.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN approvals.step_no IS
    'The step of the episode whose result is the answer. NULL for an output.';
COMMENT ON COLUMN approvals.summary IS 'The request in one sentence.';

COMMENT ON VIEW waits IS
    'What episodes waited for from other systems, and whether the event has come.';
COMMENT ON COLUMN waits.expires_at IS 'Until when it waits. NULL: no limit.';
COMMENT ON COLUMN waits.on_expiry IS 'What happens if no event comes in time: continue or fail.';
COMMENT ON COLUMN waits.ref IS 'The reference that is waited for.';
COMMENT ON COLUMN waits.resolved_by IS 'Who published the event. NULL: nobody.';
COMMENT ON COLUMN waits.since IS 'When it started waiting.';
COMMENT ON COLUMN waits.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN waits.state IS
    'pending, resolved (the event has come), expired (no event came in time) or canceled (with its episode).';
COMMENT ON COLUMN waits.step_no IS 'The step of the episode whose result is the answer.';

COMMENT ON VIEW inbox IS
    'What waits for a person now, the oldest first, and the command to type.';
COMMENT ON COLUMN inbox.actor_id IS 'The actor that it is about, if any.';
COMMENT ON COLUMN inbox.expectation_id IS
    'The expectation whose episode waits, if there is an episode; for a workflow, the step.';
COMMENT ON COLUMN inbox.expires_at IS 'Until when it can be answered. NULL: no limit.';
COMMENT ON COLUMN inbox.kind IS
    'approval (of an episode), output (to be approved), wait (for an event from another system), workflow_step (to be approved, or failed and paused) or dead_letter.';
COMMENT ON COLUMN inbox.since IS 'When it started waiting.';
COMMENT ON COLUMN inbox.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN inbox.summary IS 'What it is about, in words.';
COMMENT ON COLUMN inbox.what_to_do IS
    'The command to type. To refuse, replace `approve` by `deny` (episode, step) or `reject` (output); to skip a step, replace `--retry` by `--skip`.';

COMMENT ON VIEW workflows IS
    'Instances of workflows, and their progress.';
COMMENT ON COLUMN workflows.error_class IS 'Why it failed: a stable class.';
COMMENT ON COLUMN workflows.error_detail IS 'Why it failed, in words.';
COMMENT ON COLUMN workflows.failed_step IS
    'The step that made it fail. NULL: it did not fail, or took too long.';
COMMENT ON COLUMN workflows.instance_id IS
    'Computed from its cause: the same cause is the same instance.';
COMMENT ON COLUMN workflows.mode IS 'live, or dry_run: a rehearsal without effects outside.';
COMMENT ON COLUMN workflows.parent_instance_id IS 'The instance that it is a step of. NULL: none.';
COMMENT ON COLUMN workflows.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN workflows.started_at IS 'When it started.';
COMMENT ON COLUMN workflows.status IS
    'running, blocked (it cannot continue before a person decides), stopping, compensating, or how it ended: done, failed, canceled.';
COMMENT ON COLUMN workflows.subject_value IS 'What it is about. NULL: nothing in particular.';
COMMENT ON COLUMN workflows.updated_at IS 'When it was last changed.';

COMMENT ON COLUMN agent_definitions.definition IS
    'The definition in full; default values are omitted.';
COMMENT ON COLUMN agent_definitions.disabled_at IS 'When it was disabled. NULL: it is enabled.';
COMMENT ON COLUMN agent_definitions.disabled_by IS 'Who disabled it. NULL: it is enabled.';
COMMENT ON COLUMN agent_definitions.is_enabled IS
    'Whether it is in effect. false: it was disabled.';
COMMENT ON COLUMN agent_definitions.revision IS
    'From 1; grows each time another definition is applied.';
COMMENT ON COLUMN agent_definitions.spec_rev IS 'The spec_rev that it declares. NULL: none.';
COMMENT ON COLUMN agent_definitions.stack IS 'The stack that it belongs to.';

COMMENT ON COLUMN findings.acknowledged_at IS 'When it was acknowledged.';
COMMENT ON COLUMN findings.acknowledged_by IS 'The person who acknowledged it.';
COMMENT ON COLUMN findings.class IS 'What kind of finding it is.';
COMMENT ON COLUMN findings.cleared_at IS 'When it was cleared, or expired.';
COMMENT ON COLUMN findings.cleared_by_episode_id IS
    'The episode that cleared it. NULL: a person cleared it, or it expired.';
COMMENT ON COLUMN findings.escalated_to IS
    'The severity that it was escalated to, which is its minimum from then on.';
COMMENT ON COLUMN findings.evidence_refs IS 'The evidence for it.';
COMMENT ON COLUMN findings.expires_at IS
    'When it expires unless it is raised, updated or cleared before. NULL: never.';
COMMENT ON COLUMN findings.finding_key IS
    'Its identity: raising the same key again refreshes the finding.';
COMMENT ON COLUMN findings.severity IS
    'How bad it is: low < medium < high < critical. It may have been escalated.';
COMMENT ON COLUMN findings.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN findings.status IS
    'active; cleared: an episode or a person has ended it; expired: nobody has raised or updated it within its time to live; superseded: it had ended, and has been raised again since.';
COMMENT ON COLUMN findings.subject_kind IS 'The kind of thing that it is about.';
COMMENT ON COLUMN findings.summary IS 'The observation in words.';
COMMENT ON COLUMN findings.superseded_at IS 'When it was raised again.';
COMMENT ON COLUMN findings.ttl_s IS
    'Its time to live in seconds, counted from each raise or update. NULL: expires_at is fixed, if there is one.';
COMMENT ON COLUMN findings.updated_at IS
    'When it was last raised, refreshed, changed or ended. Notes and acknowledgements do not count.';

COMMENT ON COLUMN workflow_definitions.definition IS
    'The definition in full; default values are omitted.';
COMMENT ON COLUMN workflow_definitions.disabled_at IS 'When it was disabled. NULL: it is enabled.';
COMMENT ON COLUMN workflow_definitions.disabled_by IS 'Who disabled it. NULL: it is enabled.';
COMMENT ON COLUMN workflow_definitions.is_enabled IS
    'Whether it is in effect. false: it was disabled.';
COMMENT ON COLUMN workflow_definitions.stack IS 'The stack that it belongs to.';
COMMENT ON COLUMN workflow_definitions.subject_key IS
    'Path to the subject in the payload of its trigger. NULL: none.';
COMMENT ON COLUMN workflow_definitions.triggers IS 'What starts it. NULL: only people do.';
