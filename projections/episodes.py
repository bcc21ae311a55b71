"""The episodes read model: a row per episode, and rows for its steps, checkpoints and blocks. Pure.

Some consecutive commits of one episode become at most one change of its row: an opening with
everything known since, or what happened after an opening that is in the rows already.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Final, TypedDict, assert_never, get_args

import msgspec

from projections.rows import Row, RowChange, Statement, events_of, uuid_or_none
from streams.errors import UnreadableEvent
from streams.json import NOTHING, JsonObject
from streams.model.events import (
    CheckpointSaved,
    EpisodeApprovalGiven,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeDeferred,
    EpisodeEvent,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.findings import FindingIntent
from streams.model.money import NO_USD
from streams.model.outputs import OutputIntent, OutputOutcome
from streams.model.triggers import EpisodeTrigger, Mode, Trigger, WorkflowTrigger
from streams.model.waits import Approval
from streams.ports.log import Recorded

_TABLE: Final = "episodes"

_KEYS: Final = ("episode_id", "step_no")

SAVE_BLOCKS: Final = Statement(
    name="save_episode_blocks", table="episode_blocks", keys=_KEYS, part_of=_TABLE
)

ANSWER: Final = Statement(name="answer_episode_blocks", table="episode_blocks", keys=_KEYS)

RECORD: Final = Statement(name="record_steps", table="episode_steps", keys=_KEYS, part_of=_TABLE)

SAVE: Final = Statement(
    name="save_checkpoints",
    table="episode_checkpoints",
    keys=("episode_id", "checkpoint_no"),
    part_of=_TABLE,
)

OPEN: Final = Statement(name="open_episodes", table=_TABLE, keys=("episode_id",))

ADVANCE: Final = Statement(name="advance_episodes", table=_TABLE, keys=("episode_id",))

ATTEMPT: Final = Statement(
    name="record_attempts",
    table="episode_attempts",
    keys=("episode_id", "attempt"),
    part_of=_TABLE,
)

_EVENTS: Final[frozenset[type[EpisodeEvent]]] = frozenset(get_args(EpisodeEvent))

OUTPUTS: Final = "outputs"
"""`blocked_by` of an episode that waits for its own outputs."""

EXHAUSTED: Final = "exhausted"
"""What the metadata of an episode has if it converged because its budget was used up."""


class AnswerGiven(Row, kw_only=True):
    """A row of `sql/answer_episode_blocks.sql`."""

    episode_id: str
    step_no: int
    journal_seq: int
    resolution: str | None = None
    resolved_by: str | None = None
    resolved_reason: str | None = None
    decision_id: str | None = None
    resolved_at: datetime | None = None
    edited_hash: str | None = None
    acting_episode_id: str | None = None


class BlockBegun(AnswerGiven, kw_only=True):
    """A row of `sql/save_episode_blocks.sql`, with its answer if there is one.

    Without the fingerprint, as for a step.
    """

    reason: str
    blocked_at: datetime
    plan: msgspec.Raw = NOTHING
    plan_hash: str | None = None
    summary: str | None = None
    approvers: tuple[str, ...] = ()
    quorum: int = 1
    barred: str | None = None
    approved_by: tuple[str, ...] = ()
    request: str | None = None
    ref: str | None = None
    expires_at: datetime | None = None
    on_expiry: str | None = None
    remind_every_s: float | None = None
    editable: bool = False


def blocked(event: EpisodeBlocked, *, episode_id: str, seq: int, at: datetime) -> BlockBegun:
    """Return the row of a block without an answer."""
    block = BlockBegun(
        episode_id=episode_id,
        step_no=event.step_no,
        journal_seq=seq,
        reason=event.reason.value,
        blocked_at=at,
    )
    if event.approval is not None:
        _request(block, event.approval)
    if event.parked is not None:
        block.summary = event.parked.how
    elif event.wait is not None:
        block.ref = event.wait.ref
    terms = event.approval or event.wait
    if terms is not None:
        block.expires_at = terms.expires_at
        block.on_expiry = terms.on_expiry.value
        block.remind_every_s = terms.remind_every_s or None
    return block


def is_sleep(event: EpisodeBlocked) -> bool:
    """Return whether it waits for nothing but time: nobody has to be told."""
    return event.wait is not None and not event.wait.ref and event.parked is None


def answered(
    event: EpisodeResolved, *, earlier: AnswerGiven | None, episode_id: str, seq: int, at: datetime
) -> AnswerGiven:
    """Return the row of a block with its answer; `earlier` is its row so far, if it is known."""
    row = earlier or AnswerGiven(episode_id=episode_id, step_no=event.step_no, journal_seq=seq)
    row.journal_seq = seq
    row.resolution = event.resolution.value
    row.resolved_by = event.by or None
    row.resolved_reason = event.reason or None
    row.decision_id = event.decision_id or None
    row.resolved_at = at
    row.edited_hash = event.edited_hash or None  # guard: changed-approval-row
    row.acting_episode_id = event.acting_episode_id or None
    return row


def _request(block: BlockBegun, approval: Approval) -> None:
    block.plan = approval.plan
    block.plan_hash = approval.plan_hash
    block.summary = approval.summary or None
    block.approvers = approval.approvers
    block.quorum, block.barred = approval.quorum, approval.barred or None
    block.approved_by = tuple(each.by for each in approval.given)
    block.editable = approval.editable  # guard: inbox-says-changeable
    block.request = approval.request or None


class StepChange(Row, kw_only=True):
    """A row of `sql/record_steps.sql`; None leaves a column as it is.

    Without the fingerprint: it is of the arguments before redaction, and a short secret can be
    guessed from a hash.
    """

    episode_id: str
    step_no: int
    journal_seq: int
    kind: str
    state: str
    tool_name: str | None
    created_at: datetime
    announced_at: datetime | None = None
    side_effect_key: str | None = None
    args_redacted: msgspec.Raw = NOTHING
    result: msgspec.Raw = NOTHING
    error_class: str | None = None
    error_detail: str | None = None
    cost_tokens: int | None = None
    cost_ms: int | None = None
    model: str | None = None
    result_size_bytes: int | None = None
    """Of a result in the object store."""
    result_digest: str | None = None
    is_override: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: Decimal | None = None
    agent: str | None = None


class CheckpointChange(Row, kw_only=True):
    """A row of `sql/save_checkpoints.sql`, without the state.

    That may have results as the strategy saw them, which `redact_result` keeps from people.
    """

    episode_id: str
    checkpoint_no: int
    journal_seq: int
    step_no: int
    phase: str
    schema_version: int
    state_size_bytes: int
    created_at: datetime


def announced(event: StepAnnounced, *, episode_id: str, seq: int, at: datetime) -> StepChange:
    """Return the row of a step whose side effect is about to happen."""
    kind = StepKind.OUTPUT if event.output_key else StepKind.TOOL_CALL
    kind = StepKind.REPORT if event.findings else kind
    kind = event.asks or kind
    return StepChange(
        episode_id=episode_id,
        step_no=event.step_no,
        journal_seq=seq,
        kind=kind.value,
        state="announced",
        tool_name=None if event.findings else event.tool_name or None,
        created_at=at,
        announced_at=at,
        side_effect_key=_shown_key(event.idempotency_key) or None,
    )


def _shown_key(key: str) -> str:
    """Return the key of a call without the hash of its arguments, as for a step.

    What is left is unique: the episode and the turn, or the call of a function.
    """
    return key.rpartition(":")[0] or key  # guard: step-row-no-argument-hash


def recorded(event: StepRecorded, *, episode_id: str, seq: int, at: datetime) -> StepChange:
    """Return the row of a step that is done."""
    return StepChange(
        episode_id=episode_id,
        step_no=event.step_no,
        journal_seq=seq,
        kind=event.kind.value,
        state="recorded",
        tool_name=event.tool_name or None,
        created_at=at,
        args_redacted=event.args,
        result=shown_result(event),
        error_class=event.error_class or None,
        error_detail=event.error_detail or None,
        cost_tokens=event.cost_tokens,
        cost_ms=event.cost_ms,
        model=event.model or None,
        result_size_bytes=event.stored.size_bytes if event.stored else None,
        result_digest=event.stored.digest if event.stored and is_whole(event) else None,
        is_override=event.is_override,
        input_tokens=event.input_tokens or None,
        output_tokens=event.output_tokens or None,
        cached_tokens=event.cached_tokens or None,
        reasoning_tokens=event.reasoning_tokens or None,
        cost_usd=event.cost_usd,
        agent=event.agent or None,
    )


def is_whole(event: StepRecorded) -> bool:
    """Return whether people may see all of the result, and so its digest.

    Who may see only some of it could guess a short secret from that.
    """
    return not event.is_hidden and event.result_shown == NOTHING  # guard: digest-only-of-whole


def shown_result(event: StepRecorded) -> msgspec.Raw:
    """Return the result of a step as people may see it."""
    if event.is_hidden:  # guard: hidden-in-no-row
        return NOTHING
    return event.result if event.result_shown == NOTHING else event.result_shown


def filled_in(earlier: StepChange, later: StepChange) -> StepChange:
    """Return `later`, with its gaps filled from `earlier`."""
    said = msgspec.structs.asdict(later).items()
    return msgspec.structs.replace(
        earlier, **{name: value for name, value in said if value not in (None, NOTHING)}
    )


def checkpoint(
    event: CheckpointSaved, *, episode_id: str, seq: int, at: datetime
) -> CheckpointChange:
    """Return the row of a checkpoint."""
    return CheckpointChange(
        episode_id=episode_id,
        checkpoint_no=event.checkpoint_no,
        journal_seq=seq,
        step_no=event.step_no,
        phase=event.phase,
        schema_version=event.schema_version,
        state_size_bytes=len(memoryview(event.state)),
        created_at=at,
    )


class EpisodeProgress(Row, kw_only=True):
    """One row of `sql/advance_episodes.sql`; None leaves a column as it is."""

    episode_id: str
    journal_seq: int
    status: str | None = None
    blocked_by: str | None = None
    """Set whenever `status` is: None then says that nothing blocks it."""
    node: str | None = None
    attempts: int | None = None
    takeovers_added: int = 0
    is_takeover_if_running: bool = False
    """Whether the first of these starts takes over an episode whose row says that it runs."""
    started_at: datetime | None = None
    """Kept from the first start."""
    finished_at: datetime | None = None
    left_at: datetime | None = None
    deferred_at: datetime | None = None
    turns_used: int | None = None
    """The final count, replacing the sum of the steps."""
    turns_added: int = 0
    tokens_used: int | None = None
    """The final count, replacing the sum of the steps."""
    tokens_added: int = 0
    wall_used_ms: int | None = None
    """The final time, replacing the sum of the steps."""
    cost_usd_added: Decimal = NO_USD
    model: str | None = None
    """Kept from the first answer."""
    agent: str | None = None
    """The last one that asked."""
    first_node: str | None = None
    metadata: JsonObject | None = None
    """Merged into what there is."""
    classification: msgspec.Raw = NOTHING
    confidence: float | None = None
    summary: str | None = None
    error_class: str | None = None
    error_detail: str | None = None
    outputs: tuple[OutputOutcome, ...] = ()
    """The settled ones."""
    level_outcome: str | None = None
    would_raise: tuple[FindingIntent, ...] | None = None
    would_send: tuple[OutputIntent, ...] | None = None


class Opened(EpisodeProgress, kw_only=True):
    """One row of `sql/open_episodes.sql`: the opening, and what is known to have followed."""

    actor_id: str
    expectation_id: str
    spec_rev: str | None
    generation: int
    trigger_type: str
    trigger_ref: Trigger
    subject_kind: str | None
    subject_id: str | None
    dedupe_key: str
    budget: JsonObject
    """With its defaults, which the wire omits."""
    queued_at: datetime
    mode: str | None = None
    """None: live."""
    priority: int = 0
    opened_by: str | None = None
    is_request: bool = False
    start_by: datetime | None = None
    definition_revision: int | None = None
    """None: its actor is declared in code."""
    log_strategy: str | None = None
    service_level: JsonObject | None = None
    """With its defaults."""
    forked_from: str | None = None
    forked_at_step: int | None = None
    forked_by: str | None = None
    forked_reason: str | None = None
    workflow_id: str | None = None
    workflow_instance_id: str | None = None
    workflow_step_id: str | None = None
    workflow_step_no: int | None = None
    workflow_item: int | None = None
    parent_id: str | None = None
    parent_call: str | None = None


class Attempted(Row, kw_only=True):
    """One row of `sql/record_attempts.sql`: a start after the first one."""

    episode_id: str
    attempt: int
    journal_seq: int
    node: str
    started_at: datetime
    is_fresh: bool = False


class _Place(TypedDict):
    episode_id: str
    seq: int
    at: datetime


class EpisodeFold:
    """The fold of some consecutive commits of one episode."""

    def __init__(self, episode_id: str) -> None:
        self._episode_id = episode_id
        self._advance: EpisodeProgress | None = None
        """What is to happen to the episode's row; an `Opened`, if they open it."""
        self._steps: dict[int, StepChange] = {}
        self._saved: dict[int, CheckpointChange] = {}
        self._blocks: dict[int, AnswerGiven] = {}
        self._attempts: dict[int, Attempted] = {}

    @classmethod
    def begin(cls, record: Recorded, aggregate: str) -> EpisodeFold:
        """Return an empty fold for `aggregate`; raise `UnreadableEvent` if its id is not a UUID."""
        episode_id = uuid_or_none(aggregate)
        if episode_id is None:
            raise UnreadableEvent(record.subject, seq=record.seq, detail="its id is not a UUID")
        return cls(episode_id)

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it is no episode's, and left out."""
        for event in events_of(record, _EVENTS, whose="an episode"):
            self._add(event, seq=record.seq, at=record.commit.at)

    def changes(self) -> Iterator[RowChange]:
        """Yield each row once."""
        if self._advance is not None:
            yield RowChange(OPEN if isinstance(self._advance, Opened) else ADVANCE, self._advance)
        for step in self._steps.values():
            yield RowChange(RECORD, step)
        for saved in self._saved.values():
            yield RowChange(SAVE, saved)
        for block in self._blocks.values():
            yield RowChange(SAVE_BLOCKS if isinstance(block, BlockBegun) else ANSWER, block)
        for attempt in self._attempts.values():
            yield RowChange(ATTEMPT, attempt)

    def _add(self, event: EpisodeEvent, *, seq: int, at: datetime) -> None:
        match event:
            # First, because most are.
            case StepRecorded() | CheckpointSaved() | StepAnnounced():
                self._add_step(event, seq=seq, at=at)
            case EpisodeBlocked() | EpisodeApprovalGiven() | EpisodeResolved():
                self._add_block(event, seq=seq, at=at)
            case EpisodeOpened():
                self._advance = _opened(event, episode_id=self._episode_id, seq=seq, at=at)
            case EpisodeStarted():
                _start(self._advanced(seq), event, at=at)
                if event.attempt > 1:  # guard: later-starts-in-rows
                    place = _Place(episode_id=self._episode_id, seq=seq, at=at)
                    self._attempts[event.attempt] = attempted(event, **place)
            case EpisodeLeft():
                _enter(self._advanced(seq), "queued")
                self._advanced(seq).left_at = at
                _run(self._advanced(seq), event)
            case EpisodeConverged():
                _converge(self._advanced(seq), event)
            case EpisodeDeferred():
                _defer(self._advanced(seq), event, at=at)
            case EpisodeFinished():
                _finish(self._advanced(seq), event, at=at)
            case _:
                assert_never(event)

    def _add_step(
        self, event: StepRecorded | CheckpointSaved | StepAnnounced, *, seq: int, at: datetime
    ) -> None:
        place = _Place(episode_id=self._episode_id, seq=seq, at=at)
        match event:
            case StepRecorded():
                self._put(recorded(event, **place))
                advance = self._advanced(seq)
                advance.turns_added += event.turns  # guard: attempts-no-turns-in-rows
                advance.tokens_added += event.cost_tokens
                _run(advance, event)
                advance.model = advance.model or event.model or None
                advance.agent = event.agent or advance.agent
                if event.cost_usd is not None and not _is_of_past(advance, event):
                    advance.cost_usd_added += event.cost_usd
            case CheckpointSaved():
                self._saved[event.checkpoint_no] = checkpoint(event, **place)
            case StepAnnounced(child=None):
                self._put(announced(event, **place))
            # Many may be announced as the next step; their own rows say that they run.
            case StepAnnounced():
                pass  # guard: announced-child-no-row

    def _add_block(
        self,
        event: EpisodeBlocked | EpisodeApprovalGiven | EpisodeResolved,
        *,
        seq: int,
        at: datetime,
    ) -> None:
        place = _Place(episode_id=self._episode_id, seq=seq, at=at)
        match event:
            case EpisodeBlocked():
                self._blocks[event.step_no] = blocked(event, **place)
                by = None if is_sleep(event) else event.reason.value
                _enter(self._advanced(seq), "blocked", blocked_by=by)
            case EpisodeApprovalGiven():
                since = event.since
                self._blocks[event.step_no] = blocked(
                    event.blocked, episode_id=self._episode_id, seq=seq, at=since
                )
                self._advanced(seq)
            case EpisodeResolved():
                earlier = self._blocks.get(event.step_no)
                self._blocks[event.step_no] = answered(event, earlier=earlier, **place)
                _enter(self._advanced(seq), "queued")

    def _advanced(self, seq: int) -> EpisodeProgress:
        if self._advance is None:
            self._advance = EpisodeProgress(episode_id=self._episode_id, journal_seq=seq)
        self._advance.journal_seq = seq
        return self._advance

    def _put(self, step: StepChange) -> None:
        earlier = self._steps.get(step.step_no)
        self._steps[step.step_no] = step if earlier is None else filled_in(earlier, step)


def attempted(event: EpisodeStarted, *, episode_id: str, seq: int, at: datetime) -> Attempted:
    """Return the row of a start after the first one."""
    return Attempted(
        episode_id=episode_id,
        attempt=event.attempt,
        journal_seq=seq,
        node=event.node,
        started_at=at,
        is_fresh=event.fresh,
    )


def _opened(event: EpisodeOpened, *, episode_id: str, seq: int, at: datetime) -> Opened:
    row = Opened(
        episode_id=episode_id,
        journal_seq=seq,
        status="queued",
        actor_id=event.actor_id,
        expectation_id=event.expectation_id,
        spec_rev=event.spec_rev or None,
        generation=event.generation,
        trigger_type=str(event.trigger.__struct_config__.tag),
        trigger_ref=event.trigger,
        subject_kind=event.subject_kind or None,
        subject_id=event.trigger.entity_id or None,
        dedupe_key=event.dedupe_key,
        budget=msgspec.structs.asdict(event.budget),
        queued_at=at,
        mode=None if event.mode is Mode.LIVE else event.mode.value,
        priority=event.priority,
        opened_by=event.opened_by or None,
        is_request=event.is_request,
        start_by=event.start_by,
        definition_revision=event.revision or None,
        metadata=event.metadata or None,
        log_strategy=event.log_strategy.value,
    )
    if event.service_level is not None:
        row.service_level = msgspec.structs.asdict(event.service_level)
    if event.fork is not None:  # guard: fork-rows-show-no-workflow
        row.forked_from = uuid_or_none(event.fork.episode_id)
        row.forked_at_step, row.forked_by = event.fork.step_no, event.fork.by
        row.forked_reason = event.fork.reason or None
    elif isinstance(event.trigger, WorkflowTrigger):
        _place_in_workflow(row, event.trigger)
    elif isinstance(event.trigger, EpisodeTrigger):
        row.parent_id = uuid_or_none(event.trigger.parent_id)
        row.parent_call = event.trigger.call
    return row


def _place_in_workflow(row: Opened, trigger: WorkflowTrigger) -> None:
    row.workflow_id = trigger.workflow_id or None
    row.workflow_instance_id = uuid_or_none(trigger.workflow_instance_id)
    row.workflow_step_id = trigger.workflow_step_id
    row.workflow_step_no = trigger.workflow_step_no
    row.workflow_item = trigger.item


def _is_of_past(advance: EpisodeProgress, step: StepRecorded) -> bool:
    """Return whether a step is of the past that a fork was opened with."""
    # guard: fork-rows-past-costless
    past = advance.forked_at_step if isinstance(advance, Opened) else None
    return past is not None and step.step_no <= past


def _enter(advance: EpisodeProgress, status: str, *, blocked_by: str | None = None) -> None:
    advance.status = status
    advance.blocked_by = blocked_by


def _start(advance: EpisodeProgress, event: EpisodeStarted, *, at: datetime) -> None:
    if advance.status is None:
        advance.is_takeover_if_running = True
    elif advance.status == "running":
        advance.takeovers_added += 1
    _enter(advance, "running")
    advance.node = event.node
    advance.first_node = event.node if event.attempt == 1 else advance.first_node
    advance.attempts = event.attempt
    advance.started_at = advance.started_at or at


def _run(
    advance: EpisodeProgress,
    event: StepRecorded | EpisodeBlocked | EpisodeLeft | EpisodeConverged | EpisodeFinished,
) -> None:
    advance.wall_used_ms = event.wall_used_ms or advance.wall_used_ms


def _converge(advance: EpisodeProgress, event: EpisodeConverged) -> None:
    _run(advance, event)
    if event.classification != NOTHING:
        advance.classification = event.classification
    if event.confidence is not None:
        advance.confidence = event.confidence
    advance.summary = event.summary or advance.summary
    if event.raises_nothing:  # guard: dry-run-row-would-raise
        advance.would_raise = event.findings
    if event.sends_nothing:  # guard: dry-run-row-would-send
        advance.would_send = event.outputs
    # guard: exhausted-in-metadata
    exhausted = {EXHAUSTED: event.exhausted} if event.exhausted else {}
    if event.metadata or exhausted:
        advance.metadata = {**(advance.metadata or {}), **event.metadata, **exhausted}


def _defer(advance: EpisodeProgress, event: EpisodeDeferred, *, at: datetime) -> None:
    _enter(advance, "blocked", blocked_by=OUTPUTS)
    advance.deferred_at = at
    advance.outputs = event.outputs or advance.outputs  # guard: silent-outcomes-stay


def _finish(advance: EpisodeProgress, event: EpisodeFinished, *, at: datetime) -> None:
    _enter(advance, event.status.value)
    advance.finished_at = at
    advance.turns_used, advance.turns_added = event.turns_used, 0  # guard: end-turns-not-added
    advance.tokens_used = event.tokens_used
    advance.tokens_added = 0
    _run(advance, event)
    advance.error_class = event.error_class or advance.error_class
    advance.error_detail = event.error_detail or advance.error_detail
    advance.outputs = event.outputs or advance.outputs
    if event.service_level is not None:
        advance.level_outcome = event.service_level.value
