"""What programs read of the tables: a class for each kind of row. Pure.

A field is the column of its name, which the reference explains (docs/reference.md, Tables); None is
NULL. Times have a zone. A `…Record` has all that is known of one; a `…Summary` is what a list has.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from streams.json import JsonObject
from streams.model.waits import progress


class RowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A row, with the sequence of the commit that last changed it."""

    journal_seq: int


T = TypeVar("T", bound=RowRecord)


def record_of(row: dict[str, object], type_: type[T]) -> T:
    """Return a row of a query as a record; a column that the record has no field for is left."""
    return msgspec.convert(row, type_)


class EpisodeSummary(RowRecord, frozen=True, kw_only=True):
    """An episode, in a list."""

    episode_id: UUID
    actor_id: str
    expectation_id: str
    status: str
    mode: str
    subject_kind: str | None
    subject_id: str | None
    attempts: int
    turns_used: int | None
    tokens_used: int | None
    cost_usd: Decimal | None
    """What its own requests to models have cost, as far as that is known."""
    wall_used_ms: int | None
    """As the three before it None only in a list of the past: what it had used then is unknown."""
    model: str | None
    agent: str | None
    """The agent that asked a model last."""
    confidence: float | None
    summary: str | None
    error_class: str | None
    error_detail: str | None
    node: str | None
    metadata: JsonObject | None
    workflow_id: str | None
    workflow_instance_id: UUID | None
    workflow_step_id: str | None
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    forked_from: UUID | None
    blocked_by: str | None
    position: int | None = None
    """Its place among those of its actor that wait for their turn; only lists have it."""
    blocked_ref: str | None = None
    """The reference of the event that it waits for; only lists have it."""
    blocked_until: datetime | None = None
    """The end of its sleep, or of its wait; only lists have it."""


class EpisodeRecord(EpisodeSummary, frozen=True, kw_only=True):
    """An episode, with all that is known of it."""

    turns_used: int
    tokens_used: int
    cost_usd: Decimal
    wall_used_ms: int
    spec_rev: str | None
    definition_revision: int | None
    generation: int
    trigger_type: str
    trigger_ref: JsonObject
    dedupe_key: str
    budget: JsonObject
    log_strategy: str
    service_level: JsonObject | None
    level_outcome: str | None
    priority: int
    opened_by: str | None
    is_request: bool
    start_by: datetime | None
    first_node: str | None
    takeovers: int
    forked_at_step: int | None
    forked_by: str | None
    forked_reason: str | None
    classification: object
    outputs: list[JsonObject] | None
    would_raise: list[JsonObject] | None
    would_send: list[JsonObject] | None
    workflow_step_no: int | None
    workflow_item: int | None
    parent_id: UUID | None
    parent_call: str | None


class EpisodeCause(RowRecord, frozen=True, kw_only=True):
    """An episode of a causal chain: the second one led to the first, and so on."""

    depth: int
    episode_id: UUID
    actor_id: str
    expectation_id: str
    status: str
    trigger_type: str
    """`event`, `schedule`, `manual`, `workflow` or `episode`, for a child."""
    event: str | None
    """The name of the event that fired it; None: no event has."""
    event_id: str | None
    opened_by: str | None
    workflow_id: str | None
    workflow_instance_id: UUID | None
    parent_id: UUID | None
    forked_from: UUID | None
    subject_kind: str | None
    subject_id: str | None
    summary: str | None
    queued_at: datetime


class FailureGroup(RowRecord, frozen=True, kw_only=True):
    """Episodes that failed alike: with one error, of one expectation, in one tool."""

    actor_id: str
    expectation_id: str
    error_class: str | None
    tool_name: str | None
    """The tool of the last step that failed; None: no step has."""
    episodes: int
    first_at: datetime | None
    last_at: datetime | None
    """When the first and the last of them failed."""
    example_id: UUID
    """The one that started last."""
    error_detail: str | None
    """Its error."""


class StepRow(RowRecord, frozen=True, kw_only=True):
    """A step of an episode."""

    episode_id: UUID
    step_no: int
    kind: str
    state: str
    tool_name: str | None
    created_at: datetime
    announced_at: datetime | None
    side_effect_key: str | None
    args_redacted: object
    result: object
    error_class: str | None
    error_detail: str | None
    cost_tokens: int | None
    cost_ms: int | None
    model: str | None
    result_size_bytes: int | None
    result_digest: str | None
    is_override: bool
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    cost_usd: Decimal | None
    agent: str | None


class TimelineEntry(RowRecord, frozen=True, kw_only=True):
    """Something that an episode did, or that happened to it."""

    episode_id: UUID
    position: int
    at: datetime
    kind: str
    step_no: int | None
    name: str | None
    says: str
    person: str | None
    node: str | None
    cost_ms: int | None
    error_class: str | None
    error_detail: str | None
    details: JsonObject


class FindingSummary(RowRecord, frozen=True, kw_only=True):
    """A raise of a finding, in a list."""

    finding_key: str
    raise_no: int
    status: str
    severity: str
    class_: str = msgspec.field(name="class")
    confidence: float
    summary: str
    subject_kind: str | None
    subject_id: str | None
    actor_id: str
    expectation_id: str
    caused_by_key: str | None
    raised_by_episode_id: UUID | None
    raised_at: datetime
    updated_at: datetime
    cleared_at: datetime | None
    cleared_reason: str | None
    cleared_by: str | None
    expires_at: datetime | None
    escalated_to: str | None
    acknowledged_by: str | None


class FindingEventRow(RowRecord, frozen=True, kw_only=True):
    """A change of a finding."""

    event_no: int
    kind: str
    raise_no: int
    at: datetime
    episode_id: UUID | None
    status: str
    severity: str
    from_severity: str | None
    confidence: float
    summary: str
    evidence_refs: object
    person: str | None
    reason: str | None
    expires_at: datetime | None


class FindingRecord(FindingSummary, frozen=True, kw_only=True):
    """The latest raise of a finding, with all that is known of it."""

    evidence_refs: object
    ttl_s: float | None
    acknowledged_at: datetime | None
    superseded_at: datetime | None
    cleared_by_episode_id: UUID | None
    history: list[FindingEventRow]
    """Over all its raises, the latest first."""


class FindingCause(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of a causal chain: the first one is explained by the second, and so on."""

    depth: int
    stack: str
    finding_key: str
    raise_no: int
    status: str
    class_: str = msgspec.field(name="class")
    severity: str
    summary: str
    caused_by_key: str | None


class RelatedFinding(RowRecord, frozen=True, kw_only=True):
    """A finding, and how it is related to another one."""

    depth: int
    """Steps: less than 0 for what explains the other one, more for what that explains, 0 for
    itself."""
    finding_key: str
    status: str
    severity: str
    summary: str
    caused_by_key: str | None
    episodes: int
    """How many episodes have raised or changed it."""
    cost_usd: Decimal
    """What their requests to models have cost, in US dollars, as far as that is known."""
    cost_usd_of_all: Decimal
    """The same of all findings that are told together, each episode once."""


class OutputSummary(RowRecord, frozen=True, kw_only=True):
    """An output as it was last proposed, in a list."""

    output_key: str
    status: str
    adapter: str
    actor_id: str
    expectation_id: str
    episode_id: UUID | None
    summary: str | None
    attempts: int
    next_attempt_at: datetime | None
    delivered_ref: str | None
    error_class: str | None
    error_detail: str | None
    expires_at: datetime | None
    decided_by: str | None
    created_at: datetime
    updated_at: datetime
    delivered_at: datetime | None
    canceled_at: datetime | None


class OutputEventRow(RowRecord, frozen=True, kw_only=True):
    """A decision about an output, or an attempt to deliver it."""

    event_no: int
    kind: str
    at: datetime
    proposal_no: int | None
    episode_id: UUID | None
    attempt: int | None
    node: str | None
    person: str | None
    reason: str | None
    error_class: str | None
    error_detail: str | None
    next_attempt_at: datetime | None
    delivered_ref: str | None
    status: str | None
    """The output's status from then on."""


class OutputRecord(OutputSummary, frozen=True, kw_only=True):
    """An output as it was last proposed, with all that is known of it."""

    proposal_no: int
    payload: object
    payload_hash: str | None
    approvers: list[str]
    quorum: int = 1
    barred: str | None = None
    approved_by: list[str] = []
    on_expiry: str | None
    remind_every_s: float | None
    resolution: str | None
    decided_reason: str | None
    decision_id: str | None
    decided_at: datetime | None
    edited_hash: str | None
    asked_at: datetime | None
    history: list[OutputEventRow]
    """Over all its proposals, the latest first."""


class WorkflowSummary(RowRecord, frozen=True, kw_only=True):
    """A run of a workflow and its progress, in a list."""

    instance_id: UUID
    workflow_id: str
    status: str
    mode: str
    subject_value: str | None
    items: int
    done: int
    running: int
    waiting: int
    parent_instance_id: UUID | None
    error_class: str | None
    error_detail: str | None
    failed_step: str | None
    started_at: datetime
    updated_at: datetime | None
    """None: in a list of the past, of one that has changed since."""
    finished_at: datetime | None
    budget_usd: Decimal | None
    """US dollars; None: any sum."""
    spent_usd: Decimal | None
    """What its ended steps have spent, in US dollars; None as of `updated_at`."""


class WorkflowItem(RowRecord, frozen=True, kw_only=True):
    """An item of a step of such a run."""

    step_id: str
    item: int
    status: str
    attempts: int | None
    """None: at a time past, of one that was tried again since."""
    episode_id: UUID | None
    input: object
    result: object
    error_class: str | None
    error_detail: str | None
    retry_at: datetime | None
    plan_hash: str | None
    summary: str | None
    approvers: list[str] | None
    quorum: int = 1
    barred: str | None = None
    approved_by: list[str] = []
    asked_at: datetime | None
    expires_at: datetime | None
    decided_by: str | None
    decided_reason: str | None
    edited_hash: str | None
    compensation_status: str | None
    compensation_episode_id: UUID | None
    started_at: datetime | None
    finished_at: datetime | None
    reused_episode_id: UUID | None


class WorkflowRecord(RowRecord, frozen=True, kw_only=True):
    """A run of a workflow, with all that is known of it."""

    instance_id: UUID
    workflow_id: str
    status: str
    mode: str
    definition_revision: int | None
    trigger_type: str
    trigger_ref: JsonObject
    subject_value: str | None
    dedupe_key: str
    steps: object
    parent_instance_id: UUID | None
    parent_step_id: str | None
    depth: int
    error_class: str | None
    error_detail: str | None
    failed_step: str | None
    canceled_by: str | None
    cancel_reason: str | None
    not_undone: list[str] | None
    started_at: datetime
    updated_at: datetime | None
    """None: at a time past, of one that has changed since."""
    finished_at: datetime | None
    budget_usd: Decimal | None
    """US dollars; None: any sum."""
    spent_usd: Decimal | None
    """What its ended steps have spent, in US dollars; None as of `updated_at`."""
    items: list[WorkflowItem]


class InboxItem(RowRecord, frozen=True, kw_only=True):
    """What waits for a person."""

    kind: str
    id: str
    actor_id: str | None
    expectation_id: str | None
    summary: str | None
    since: datetime
    expires_at: datetime | None
    what_to_do: str
    episodes: int | None
    subject_kind: str | None
    subject_id: str | None
    approvers: list[str] | None
    quorum: int = 1
    """How many different people have to approve it."""
    approved_by: list[str] = []
    """Who has, so far."""
    editable: bool
    item: int | None

    @property
    def progress(self) -> str:
        """How many have approved what takes several, and who; empty: one is enough."""
        return progress(self.quorum, self.approved_by)


class OrderSummary(RowRecord, frozen=True, kw_only=True):
    """Something that a person has ordered of the running stack."""

    order_key: str
    change: str
    node: str | None
    actor_id: str | None
    expectation_id: str | None
    mode: str | None
    partitions: int | None
    at: datetime
    person: str | None
    reason: str | None
    event_no: int


class DecisionSummary(RowRecord, frozen=True, kw_only=True):
    """What somebody has decided about a request for approval."""

    kind: str
    """`episode`, `output` or `step`: what had asked."""
    id: str
    """Of an output its key, of a step that of its instance."""
    step_id: str | None
    actor_id: str
    expectation_id: str
    subject_id: str | None
    episode_id: UUID | None
    """The episode that had asked, or proposed the output; of a step, the one that runs it."""
    summary: str | None
    decision: str
    """`approved`, `denied`, or `approval_given` of an output that needs more of them."""
    person: str
    """Who; of several who had to approve, all of them."""
    reason: str | None
    at: datetime
    is_changed: bool
    """Whether who approved it has changed it."""


class TokenSummary(RowRecord, frozen=True, kw_only=True):
    """A token with which a program uses the stack, without its secret."""

    token_id: str
    name: str
    role: str
    scopes: list[str] | None
    is_agent: bool
    owner: str | None
    issued_at: datetime
    issued_by: str
    issued_reason: str | None
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None
    revoked_reason: str | None


class AuditEntry(RowRecord, frozen=True, kw_only=True):
    """Something that somebody did about people, sign-ins or tokens."""

    person_key: str
    """What it is about: `people`, `login.<name>`, `token.<id>` or `link.<id>`."""
    change: str
    name: str
    person: str
    reason: str | None
    role: str | None
    groups: list[str] | None
    token_id: str | None
    session_id: str | None
    way: str | None
    address: str | None
    agent: str | None
    at: datetime
    event_no: int


class RefusalSummary(RowRecord, frozen=True, kw_only=True):
    """An event that did not fire an expectation."""

    event_id: str
    """Of a tick of a schedule: its dedupe key."""
    event: str
    """The event's name; `tick` of a schedule."""
    actor_id: str
    expectation_id: str
    subject_id: str | None
    refused_at: datetime
    node: str
    reason: str
    compared_with: str


class ServiceLevelRecord(RowRecord, frozen=True, kw_only=True):
    """What an expectation promises, and how many of its latest episodes have kept it."""

    actor_id: str
    expectation_id: str
    start_s: float
    end_s: float
    success: float
    episodes_max: int
    episodes: int
    met: int
    late_start: int
    failed: int
    late_end: int
    ratio: float
    is_kept: bool
    start_p50_s: float | None
    start_p95_s: float | None
    end_p50_s: float
    end_p95_s: float
    since: datetime
    until: datetime


class BudgetRecommendation(RowRecord, frozen=True, kw_only=True):
    """What the latest episodes of an expectation used, and what budget would suit them."""

    actor_id: str
    expectation_id: str
    budget: JsonObject
    episodes: int
    exhausted: int
    turns_p50: float
    turns_p95: float
    turns_max: int
    tokens_p50: float
    tokens_p95: float
    tokens_max: int
    wall_p50_s: float
    wall_p95_s: float
    wall_max_s: float
    turns: int | None
    tokens: int | None
    wall_s: float | None


CostBy: TypeAlias = Literal["actor", "model", "agent", "day", "finding", "episode", "all"]
"""What costs are summed by. An episode with several findings counts for each of them."""


class CostSummary(RowRecord, frozen=True, kw_only=True):
    """What requests to models have cost, of one actor, model, day, finding or agent."""

    name: str | None
    """Which one; a day as `2026-11-29`. None: of none."""
    requests: int
    unpriced: int
    """Requests of which nobody knows the cost."""
    tokens: int
    cost_usd: Decimal
    since: datetime
    until: datetime
    actor_id: str | None = None
    """Of an episode; None: of anything else."""
    expectation_id: str | None = None


class DeadLetterSummary(RowRecord, frozen=True, kw_only=True):
    """A dead letter, in a list."""

    letter_key: str
    status: str
    reason: str
    detail: str
    actor_id: str | None
    episode_id: UUID | None
    output_key: str | None
    source_stream: str
    source_seq: int
    source_subject: str
    payload_size_bytes: int
    lettered_at: datetime
    settled_at: datetime | None
    settled_by: str | None
    settled_note: str | None


class DeadLetterRecord(DeadLetterSummary, frozen=True, kw_only=True):
    """A dead letter, with all that is known of it."""

    headers: JsonObject
    payload: bytes
    output_status: str | None
