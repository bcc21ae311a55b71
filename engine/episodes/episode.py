"""The Episode aggregate: its state, commands, statuses, `decide` and `evolve`. Pure.

`TRANSITIONS` is the table of a whole life; the docs' diagram is made from it. Read this file first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from engine.episodes.redaction import ASKING, as_shown
from engine.errors import BudgetExceeded, Rejected
from streams.json import NOTHING
from streams.model.children import ChildEnd, ChildStart
from streams.model.events import (
    AGAIN,
    BlockReason,
    CheckpointSaved,
    EndStatus,
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
    KeptPrompt,
    Parked,
    Resolution,
    StepAnnounced,
    StepKind,
    StepRecorded,
    StoredResult,
)
from streams.model.findings import FindingIntent, FindingOutcome
from streams.model.money import NO_USD, USD_LEAST, dollars
from streams.model.outputs import (
    ALL_OUTPUTS_FAILED,
    FAILURES,
    SETTLED,
    SUCCESSES,
    OutputOutcome,
    OutputResult,
)
from streams.model.triggers import NOTHING_GRANTED, Budget, Grant, LogStrategy
from streams.model.waits import Approval, Wait
from streams.ports.log import Recorded

CLASSES_TOLD_MAX: Final = 5
"""Most error classes that the detail of its end lists."""

EXPIRED: Final = "expired"
"""Error class of an episode that was canceled because it did not start within `start_within_s`."""

CYCLE_STEPS_MAX: Final = 4
"""Longest cycle looked for, in steps."""

ROUNDS: Final = 3
"""Equal rounds that make a loop."""

WINDOW_STEPS: Final = CYCLE_STEPS_MAX * ROUNDS
"""How many of the newest steps are compared."""


class Performed(msgspec.Struct, frozen=True, kw_only=True):
    """A step with its result; the fields are `StepRecorded`'s."""

    kind: StepKind
    fingerprint: str
    tool_name: str = ""
    args: msgspec.Raw = NOTHING
    result: msgspec.Raw = NOTHING
    result_shown: msgspec.Raw = NOTHING
    is_hidden: bool = False
    error_class: str = ""
    error_detail: str = ""
    cost_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: Decimal | None = None
    agent: str = ""
    cost_ms: int = 0
    model: str = ""
    is_override: bool = False
    path: str = ""
    retry_s: float = 0.0
    stored: StoredResult | None = None
    child: ChildEnd | None = None
    prompt: KeptPrompt | None = None


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """A node begins, or takes over."""

    node: str
    claim_revision: int = 0
    fresh: bool = False
    alone: bool = False
    code: str = ""


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    """The node is stopping."""

    node: str


class Announce(msgspec.Struct, frozen=True, kw_only=True):
    """A side effect follows."""

    fingerprint: str
    tool_name: str
    idempotency_key: str
    output_key: str = ""
    path: str = ""
    until: datetime | None = None
    findings: tuple[FindingIntent, ...] = ()
    child: ChildStart | None = None
    reserved_usd: Decimal | None = None


class Save(msgspec.Struct, frozen=True, kw_only=True):
    """Store the state."""

    phase: str
    state: msgspec.Raw
    schema_version: int = 1


class BlockEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """Wait for an answer from outside."""

    reason: BlockReason
    fingerprint: str
    approval: Approval | None = None
    wait: Wait | None = None
    path: str = ""
    ahead: tuple[str, ...] = ()
    parked: Parked | None = None
    for_children: bool = False


class AnswerEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """The wait is over; its result, unless it was parked, has just been recorded as its step."""

    resolution: Resolution
    by: str = ""
    reason: str = ""
    decision_id: str = ""
    edited_hash: str = ""
    request_no: int = 0
    acting_episode_id: str = ""
    park_no: int = 0


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """The result has been applied and delivered, or there was none."""

    findings: tuple[FindingOutcome, ...] = ()
    outputs: tuple[OutputOutcome, ...] = ()


class FailEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """It cannot go on."""

    error_class: str
    error_detail: str = ""
    outputs: tuple[OutputOutcome, ...] = ()


class CancelEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """A person, a program or a rule cancels it. What was applied or delivered stays."""

    error_class: str
    error_detail: str = ""
    findings: tuple[FindingOutcome, ...] = ()
    outputs: tuple[OutputOutcome, ...] = ()


Command: TypeAlias = (
    EpisodeOpened
    | Begin
    | Leave
    | Announce
    | Performed
    | Save
    | BlockEpisode
    | AnswerEpisode
    | EpisodeApprovalGiven
    | EpisodeConverged
    | EpisodeDeferred
    | Finish
    | FailEpisode
    | CancelEpisode
)
"""Openings, approvals, convergences and postponed outputs are decided elsewhere, as events."""


class Status(StrEnum):
    """Where an episode is in its life."""

    UNOPENED = "unopened"
    QUEUED = "queued"
    RUNNING = "running"
    CONVERGING = "converging"
    """It has converged; its findings are being applied, its outputs delivered."""
    BLOCKED = "blocked"
    """It waits for people or for a signal. No node runs it."""
    DELIVERING = "delivering"
    """Some outputs are to be delivered or approved later. No node runs it meanwhile."""
    DONE = "done"
    FAILED = "failed"
    PARTIALLY_FAILED = "partially_failed"
    CANCELED = "canceled"


RUNS: Final = frozenset({Status.RUNNING, Status.CONVERGING})
"""A node runs it. If another one takes over, the first has crashed."""

WAITING: Final = frozenset({Status.BLOCKED, Status.DELIVERING})
"""No node runs it, and none is needed until something happens."""

ENDED: Final = frozenset({Status.DONE, Status.FAILED, Status.PARTIALLY_FAILED, Status.CANCELED})

TRANSITIONS: Final[Mapping[Status, Mapping[type, Status | None]]] = {
    Status.UNOPENED: {EpisodeOpened: Status.QUEUED},
    Status.QUEUED: {EpisodeStarted: Status.RUNNING, EpisodeFinished: Status.CANCELED},
    Status.RUNNING: {
        EpisodeStarted: Status.RUNNING,
        EpisodeLeft: Status.QUEUED,
        StepAnnounced: Status.RUNNING,
        StepRecorded: Status.RUNNING,
        CheckpointSaved: Status.RUNNING,
        EpisodeBlocked: Status.BLOCKED,
        EpisodeConverged: Status.CONVERGING,
        EpisodeFinished: None,
    },
    Status.BLOCKED: {
        StepRecorded: Status.BLOCKED,
        EpisodeApprovalGiven: Status.BLOCKED,
        EpisodeResolved: Status.QUEUED,
        EpisodeFinished: Status.CANCELED,
    },
    Status.CONVERGING: {
        EpisodeStarted: Status.CONVERGING,
        EpisodeDeferred: Status.DELIVERING,
        EpisodeFinished: None,
    },
    Status.DELIVERING: {EpisodeStarted: Status.CONVERGING, EpisodeFinished: Status.CANCELED},
    Status.DONE: {},
    Status.FAILED: {},
    Status.PARTIALLY_FAILED: {},
    Status.CANCELED: {},
}
"""Status → event → status: every legal transition, and the source of the diagram in the docs.

`EpisodeFinished` leads to the status it carries, which is one of `ENDED`; a status instead of None
means that one alone. The past of a fork comes with its opening and is no transition.
"""


NOW: Final = "now"
"""The tool of a step that asks for the time, which is never the same."""


class Trace(msgspec.Struct, frozen=True):
    """One step, for loop detection."""

    fingerprint: str
    tokens_total: int
    """Tokens the episode had used after the step."""
    outcome: int = 0
    """A hash of its result: an equal action with another result is no loop."""
    what: str = ""
    """The call as people may see it, such as `disk.read({"mount":"/"})`."""
    path: str = ""
    """Where the strategy asked for it."""

    def __str__(self) -> str:
        """Return the call, and where it was made."""
        return f"{self.what} (call {self.path})"


class _Granted(msgspec.Struct, frozen=True):
    plan: Grant = NOTHING_GRANTED


_granted: Final = msgspec.json.Decoder(_Granted)

ARGS_CHARS_MAX: Final = 120
"""How much of a call's arguments an error shows."""


def attempt_at(path: str) -> tuple[str, int]:
    """Return the path of the first attempt at the call at `path`, and which attempt this one is."""
    first, again, number = path.rpartition(AGAIN)
    return (first, int(number) // 2 + 1) if again else (path, 1)


def pause_after(path: str) -> str:
    """Return the path of the pause after the failed attempt at `path`; the next attempt follows."""
    first, attempt = attempt_at(path)
    return f"{first}{AGAIN}{2 * attempt - 1}"


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """The fold of an episode's events."""

    status: Status = Status.UNOPENED
    opened: EpisodeOpened | None = None
    attempts: int = 0
    crashes: int = 0
    """Attempts, since it last got further, whose node neither finished nor left."""
    is_alone: bool = False
    """Whether the newest attempt's process ran nothing else."""
    steps_before: int = 0
    """Steps recorded before the strategy last restarted."""
    steps_most: int = 0
    """The most steps that it has recorded without a restart: with the next one it gets further."""
    node: str = ""
    claim_revision: int = 0
    node_lease_since: datetime | None = None
    """See `EpisodeStarted`."""
    steps_recorded: int = 0
    turns_used: int = 0
    """Steps that count for its budget, over all attempts; `Finish` adds the conclusion."""
    tokens_used: int = 0
    usd_used: Decimal = NO_USD
    """Dollars that its requests to models, and its children, have cost."""
    wall_used_s: float = 0.0
    """Seconds that it has run, over all attempts, without waiting for the log. Of an attempt whose
    node has died, what came after its last record is not known.
    """
    traces: tuple[Trace, ...] = ()
    """The newest steps, for loop detection."""
    announced: tuple[StepAnnounced, ...] = ()
    """What was announced and is not recorded yet, one for each path; but children."""
    children: Mapping[str, StepAnnounced] = msgspec.field(default_factory=dict)
    """Path → the announced child whose end is not recorded yet: there may be many."""
    children_ended: tuple[frozenset[str], ...] = ()
    """The children whose ends are recorded, and count: sets of which each is larger than the next,
    since there may be any number.
    """
    effects: tuple[str, ...] = ()
    """Tools with side effects, announced since the strategy last restarted."""
    checkpoints_saved: int = 0
    schema_version: int = 0
    """Of the newest checkpoint since the strategy last restarted; 0: there is none."""
    blocked: EpisodeBlocked | None = None
    """Its wait, or its last one."""
    resolved: EpisodeResolved | None = None
    """Its last answer."""
    parked: EpisodeBlocked | None = None
    """Its wait for other code, or its last one, unless it has got further since."""
    parks: int = 0
    """How often it was parked."""
    code: str = ""
    """A digest of the code of its newest attempt."""
    code_before: str = ""
    """Of the attempt that has recorded the newest step, announcement or wait."""
    granted: Grant = NOTHING_GRANTED
    """What people have granted beyond its budget, over all attempts."""
    not_granted: str = ""
    """Why people have granted no more: then nobody is asked again; empty: they have not refused."""
    outputs: tuple[str, ...] = ()
    """Keys of the outputs that its steps proposed or announced."""
    outputs_settled: tuple[OutputOutcome, ...] = ()
    """The outcomes of those that were settled when their step was recorded; of a fork, its own."""
    reported: tuple[str, ...] = ()
    """Keys of the findings that its steps announced, over all attempts: the number of each intent
    is its place, and those of the convergence follow."""
    converged: EpisodeConverged | None = None
    deferred: EpisodeDeferred | None = None
    """What was settled when the episode first had to wait for its outputs."""
    finished: EpisodeFinished | None = None

    @property
    def budget(self) -> Budget:
        """What it may use: what it was opened with, and what people have granted since."""
        assert self.opened is not None, "what was never opened has no budget"
        return self.granted.beyond(self.opened.budget)

    @property
    def outputs_left(self) -> tuple[str, ...]:
        """Keys of the outputs of its steps that may be unsettled."""
        settled = {each.output_key for each in self.outputs_settled}
        return tuple(key for key in self.outputs if key not in settled)

    @property
    def reservations(self) -> Mapping[str, Decimal]:
        """Path → dollars that are kept for what was announced there and is not recorded yet.

        For a request to a model, the most that it can cost; for a child, all that it may spend.
        """
        reserved = {
            each.path: each.reserved_usd
            for each in self.announced
            if each.reserved_usd is not None  # guard: announced-request-reserves
        }
        for path, each in self.children.items():
            if each.child is not None and each.child.budget.usd:  # guard: open-child-reserves
                reserved[path] = each.child.budget.usd
        return reserved

    @property
    def usd_reserved(self) -> Decimal:
        """Dollars that may still be spent by what was announced and is not recorded yet."""
        return sum(self.reservations.values(), NO_USD)


UNOPENED: Final = Episode()


def decide(episode: Episode, command: Command) -> EpisodeEvent:
    """Return the event of `command` for `episode`; `Rejected`: it does not fit the state."""
    event = _event(episode, command)
    if not _is_legal(episode.status, event):
        raise Rejected(f"{type(command).__name__} while {episode.status}")
    return event


def _is_legal(status: Status, event: EpisodeEvent) -> bool:
    leads_to = TRANSITIONS[status]
    if type(event) not in leads_to:
        return False
    target = leads_to[type(event)]
    return not isinstance(event, EpisodeFinished) or target in (None, Status(event.status.value))


def _event(episode: Episode, command: Command) -> EpisodeEvent:
    match command:
        case EpisodeOpened() | EpisodeApprovalGiven() | EpisodeDeferred():
            return command
        case EpisodeConverged():
            return replace(command, wall_used_ms=_wall_used_ms(episode))
        case Begin():
            return EpisodeStarted(attempt=episode.attempts + 1, **msgspec.structs.asdict(command))
        case Leave(node=node):
            return EpisodeLeft(node=node, wall_used_ms=_wall_used_ms(episode))
        case Finish():
            return _finished(episode, command)
        case FailEpisode() | CancelEpisode():
            return EpisodeFinished(
                status=EndStatus.FAILED if isinstance(command, FailEpisode) else EndStatus.CANCELED,
                turns_used=episode.turns_used,
                tokens_used=episode.tokens_used,
                usd_used=episode.usd_used,
                wall_used_ms=_wall_used_ms(episode),
                **msgspec.structs.asdict(command),
            )
        case _:
            return _step_event(episode, command)


def _step_event(
    episode: Episode, command: Announce | Performed | Save | BlockEpisode | AnswerEpisode
) -> EpisodeEvent:
    last, said = episode.steps_recorded, msgspec.structs.asdict(command)
    used_ms = _wall_used_ms(episode)
    match command:
        case Announce():
            number = len(episode.reported) if command.findings else 0  # guard: reports-numbered
            return StepAnnounced(step_no=last + 1, finding_no=number, **said)
        case Performed():
            # guard: child-time-counts
            ran_ms = used_ms + (command.child.wall_ms if command.child is not None else 0)
            step = StepRecorded(step_no=last + 1, wall_used_ms=ran_ms, **said)
            return _shown(episode, step)
        case BlockEpisode():
            return EpisodeBlocked(step_no=last + 1, wall_used_ms=used_ms, **said)
        case AnswerEpisode():
            # Ends of children may have been recorded since; a parked episode records no answer.
            no_block = last + bool(command.park_no)
            block_no = episode.blocked.step_no if episode.blocked is not None else no_block
            return EpisodeResolved(step_no=block_no, **said)
        case Save():
            number = episode.checkpoints_saved
            return CheckpointSaved(checkpoint_no=number, step_no=last, **said)
        case _:
            assert_never(command)


def _shown(episode: Episode, step: StepRecorded) -> StepRecorded:
    strategy = episode.opened.log_strategy if episode.opened else LogStrategy.FULL_DEBUG
    # guard: full-log-cuts-answers
    if strategy is LogStrategy.FULL_DEBUG and step.kind not in ASKING:
        return step
    return as_shown(step, strategy)  # guard: step-by-opening-strategy


def _finished(episode: Episode, command: Finish) -> EpisodeFinished:
    status, failed = end_of(command.outputs)
    classes = sorted({each.error_class for each in command.outputs if each.error_class})
    why, failed_all = ", ".join(classes[:CLASSES_TOLD_MAX]), status is EndStatus.FAILED
    return EpisodeFinished(
        status=status,
        turns_used=episode.turns_used + 1,
        tokens_used=episode.tokens_used,
        usd_used=episode.usd_used,
        error_class=ALL_OUTPUTS_FAILED if failed_all else "",
        error_detail=f"{failed} could not be delivered: {why}" if failed_all else "",
        findings=command.findings,
        outputs=command.outputs,
        wall_used_ms=_wall_used_ms(episode),
    )


def _wall_used_ms(episode: Episode) -> int:
    return round(episode.wall_used_s * 1000)


def end_of(outputs: Iterable[OutputOutcome]) -> tuple[EndStatus, int]:
    """Return how an episode ends, and how many outputs failed; people's refusals do not count."""
    outcomes = [each.outcome for each in outputs]
    failed = sum(each in FAILURES for each in outcomes)
    if not failed:
        return EndStatus.DONE, failed
    has_succeeded = any(each in SUCCESSES for each in outcomes)
    return EndStatus.PARTIALLY_FAILED if has_succeeded else EndStatus.FAILED, failed


def evolve(episode: Episode, event: EpisodeEvent) -> Episode:
    """Return `episode` after `event`."""
    match event:
        case StepRecorded():  # First, since nearly all that a long episode has recorded are steps.
            return _with_step(_further(episode), event)
        case EpisodeOpened():
            return replace(episode, status=Status.QUEUED, opened=event)
        case EpisodeStarted():
            return _started(episode, event)
        case EpisodeLeft():
            return replace(episode, status=Status.QUEUED, wall_used_s=_wall_used_s(episode, event))
        case EpisodeConverged():
            used_s = _wall_used_s(episode, event)
            return replace(
                episode,
                status=Status.CONVERGING,
                converged=event,
                wall_used_s=used_s,
                parked=None,
            )
        case EpisodeDeferred():
            return replace(episode, status=Status.DELIVERING, deferred=event)
        case EpisodeFinished(status=status):
            return replace(episode, status=Status(status.value), finished=event)
        case _:
            return _moved(episode, event)


def _moved(
    episode: Episode,
    event: StepAnnounced
    | CheckpointSaved
    | EpisodeBlocked
    | EpisodeApprovalGiven
    | EpisodeResolved,
) -> Episode:
    match event:
        case StepAnnounced():
            return _announced(_further(episode), event)
        case CheckpointSaved(checkpoint_no=number):
            return replace(
                _further(episode),
                checkpoints_saved=number + 1,
                schema_version=event.schema_version,
            )
        case EpisodeBlocked():
            used_s = _wall_used_s(episode, event)
            moved = replace(episode, status=Status.BLOCKED, blocked=event, wall_used_s=used_s)
            if event.parked is None:
                return _further(moved)
            return replace(moved, parked=event, parks=event.parked.number)
        case EpisodeApprovalGiven(blocked=blocked):
            return replace(episode, blocked=blocked)
        case EpisodeResolved():
            return replace(episode, status=Status.QUEUED, resolved=event)
        case _:
            assert_never(event)


def _further(episode: Episode) -> Episode:
    """Return `episode` after what no replay records: its code takes the way that was recorded."""
    if episode.parked is None and episode.code_before == episode.code:
        return episode
    return replace(episode, parked=None, code_before=episode.code)


def fold(records: Iterable[Recorded], episode: Episode = UNOPENED) -> Episode:
    """Return `episode` after all of `records`, oldest first."""
    for record in records:
        for event in record.commit.events:
            if isinstance(event, EpisodeEvent):
                episode = evolve(episode, event)
    return episode


def _wall_used_s(
    episode: Episode, event: EpisodeLeft | StepRecorded | EpisodeBlocked | EpisodeConverged
) -> float:
    return max(episode.wall_used_s, event.wall_used_ms / 1000)


def _started(episode: Episode, event: EpisodeStarted) -> Episode:
    crashed, is_decided = episode.status in RUNS, episode.converged is not None
    # What is forgotten here may cost its most.
    lost = episode.usd_reserved if event.fresh else NO_USD  # guard: restart-keeps-reserved
    return replace(
        episode,
        usd_used=episode.usd_used + lost if lost else episode.usd_used,
        status=Status.CONVERGING if is_decided else Status.RUNNING,
        node=event.node,
        claim_revision=event.claim_revision,
        node_lease_since=event.node_lease_since,
        code=event.code,
        parked=None if event.fresh else episode.parked,
        attempts=event.attempt,
        crashes=episode.crashes + crashed,
        is_alone=event.alone,
        steps_before=episode.steps_recorded if event.fresh else episode.steps_before,
        traces=() if event.fresh else episode.traces,
        announced=() if event.fresh else episode.announced,
        children={} if event.fresh else episode.children,
        effects=() if event.fresh else episode.effects,
        schema_version=0 if event.fresh else episode.schema_version,
    )


def _announced(episode: Episode, event: StepAnnounced) -> Episode:
    if event.child is not None:
        return replace(episode, children={**episode.children, event.path: event})
    announced = (*_without(episode.announced, event.path), event)
    if event.output_key:
        outputs = (*episode.outputs, *({event.output_key} - set(episode.outputs)))
        return replace(episode, announced=announced, outputs=outputs)
    if event.findings:
        keys = tuple(intent.finding_key for intent in event.findings)
        return replace(episode, announced=announced, reported=episode.reported + keys)
    acts = {event.tool_name} if event.is_call else set()
    effects = (*episode.effects, *(acts - set(episode.effects)))
    return replace(episode, announced=announced, effects=effects)


def _without(announced: tuple[StepAnnounced, ...], path: str) -> tuple[StepAnnounced, ...]:
    return tuple([each for each in announced if each.path != path])


def _without_child(children: Mapping[str, StepAnnounced], path: str) -> Mapping[str, StepAnnounced]:
    if path not in children:
        return children
    left = dict(children)
    del left[path]
    return left


def _outcome(step: StepRecorded) -> int:
    """Return a hash of a step's result and branch: equal calls of two branches are no loop."""
    # guard: asking-time-no-loop
    where = step.path if step.tool_name == NOW else ".".join(step.path.split(".")[1::2])
    # guard: different-results-no-loop
    result = bytes(step.result) if step.stored is None else step.stored.digest
    # guard: branches-equal-calls-no-loop
    return hash((result, step.error_class, where))


def _call(step: StepRecorded) -> str:
    if step.args == NOTHING:
        return step.tool_name or step.kind.value
    args = bytes(memoryview(step.args)[:ARGS_CHARS_MAX]).decode(errors="ignore")
    return f"{step.tool_name or step.kind.value}({args})"


def _with_step(episode: Episode, step: StepRecorded) -> Episode:
    tokens_used = episode.tokens_used + step.cost_tokens
    trace = Trace(step.fingerprint, tokens_used, _outcome(step), _call(step), step.path)
    # The past that a fork is opened with: those outputs are the other episode's.
    # guard: fork-past-outputs-not-own
    settled = () if episode.status is Status.QUEUED else _settled_by(step)
    if step.is_grant:
        episode = _with_grant(episode, step)
    steps = step.step_no - episode.steps_before
    return replace(
        episode,
        # guard: recorded-step-forgives
        crashes=0 if steps > episode.steps_most else episode.crashes,
        steps_most=max(steps, episode.steps_most),
        steps_recorded=step.step_no,
        # guard: child-turns-count
        turns_used=episode.turns_used + step.turns,
        tokens_used=tokens_used,
        usd_used=_usd_used(episode, step),
        wall_used_s=_wall_used_s(episode, step),  # guard: parallel-time-counts-once
        outputs_settled=episode.outputs_settled + settled,
        traces=(*episode.traces, trace)[-WINDOW_STEPS:],
        announced=_without(episode.announced, step.path),  # guard: announcement-until-own-step
        children=_without_child(episode.children, step.path),
        children_ended=_with_child(episode.children_ended, step),
    )


def _with_grant(episode: Episode, step: StepRecorded) -> Episode:
    if step.error_class:
        return replace(episode, not_granted=step.error_detail or step.error_class)
    return replace(episode, granted=episode.granted + _granted.decode(step.result).plan)


def _usd_used(episode: Episode, step: StepRecorded) -> Decimal:
    usd = step.usd
    if step.is_request and step.cost_usd is None:
        # Nobody knows what it has cost: as much as it can have.
        usd = episode.reservations.get(step.path, NO_USD)  # guard: unknown-cost-counts-at-most
    return episode.usd_used + usd if usd else episode.usd_used


def _with_child(
    ended: tuple[frozenset[str], ...], step: StepRecorded
) -> tuple[frozenset[str], ...]:
    if step.child is None:
        return ended
    newest = frozenset({step.child.episode_id})
    while ended and len(ended[-1]) <= len(newest):
        newest, ended = newest | ended[-1], ended[:-1]
    return *ended, newest


def _settled_by(step: StepRecorded) -> tuple[OutputOutcome, ...]:
    if step.kind is not StepKind.OUTPUT or step.error_class:
        return ()
    said = msgspec.json.decode(step.result, type=OutputResult)
    if said.status not in SETTLED:
        return ()
    outcome = OutputOutcome(
        output_key=said.output_key, outcome=said.status, error_class=said.error_class
    )
    return (outcome,)


def seed_of(opened: EpisodeOpened) -> str:
    """Return what the function of an episode draws with; a fork draws what its past has drawn."""
    # guard: fork-of-fork-first-seed
    return (opened.fork.seed if opened.fork is not None else "") or opened.episode_id


def expiry(episode: Episode, *, at: datetime) -> CancelEpisode | None:
    """Return the end of `episode` if it should have started before `at` and has not; else None.

    One that has started continues, however late: it may have changed something outside.
    """
    opened = episode.opened
    if opened is None or opened.start_by is None or at <= opened.start_by:
        return None
    if episode.status is not Status.QUEUED or episode.attempts:  # guard: begun-in-time-stays
        return None
    return CancelEpisode(
        error_class=EXPIRED, error_detail=f"not begun by {opened.start_by.isoformat()}"
    )


def overspent(
    budget: Budget,
    *,
    turns: int,
    tokens: int,
    wall_s: float,
    usd: Decimal = NO_USD,
    granted: Grant = NOTHING_GRANTED,
) -> BudgetExceeded | None:
    """Return which limit is used up and by how much, or None if there is room for a turn.

    `granted`: what people have granted beyond `budget`.
    """
    budget = granted.beyond(budget)
    if 0 < budget.turns <= turns:  # guard: turn-budget
        told, lacks = f"{turns} used of {budget.turns}", turns - budget.turns + 1
        return BudgetExceeded("turns", told, lacks=lacks)
    if 0 < budget.tokens <= tokens:  # guard: token-budget
        told, lacks = f"{tokens} used of {budget.tokens}", tokens - budget.tokens + 1
        return BudgetExceeded("tokens", told, lacks=lacks)
    if 0 < budget.wall_s <= wall_s:  # guard: wall-budget
        return BudgetExceeded("wall_s", f"{wall_s:.3f} used of {budget.wall_s:g}")
    if 0 < budget.usd <= usd:  # guard: usd-budget
        told = f"{dollars(usd)} used of {dollars(budget.usd)}"
        return BudgetExceeded("usd", told, lacks=usd - budget.usd + USD_LEAST)
    return None


def unaffordable(
    budget: Budget, usd: Decimal, *, used: Decimal, reserved: Decimal
) -> BudgetExceeded | None:
    """Return why a request that may cost `usd` does not fit in the budget, or None if it does."""
    # guard: request-within-budget
    if budget.usd <= 0 or used + reserved + usd <= budget.usd:
        return None
    kept = f" and {dollars(reserved)} reserved" if reserved else ""
    detail = f"{dollars(used)} used{kept} of {dollars(budget.usd)}"
    told = f"{detail}; the next request may cost {dollars(usd)}"
    return BudgetExceeded("usd", told, lacks=used + reserved + usd - budget.usd)


def find_loop(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """Return the newest round of the cycle that `traces`, oldest first, end in; empty for none.

    The last steps are a loop when they are one short cycle of equal actions with equal results,
    repeated `ROUNDS` times, and no tokens were spent: a model that thinks between equal actions may
    change its mind, a rule will not. Only the newest steps count, so a loop is found however much
    useful work came before it.
    """
    for cycle_steps in range(1, CYCLE_STEPS_MAX + 1):
        tail = traces[-cycle_steps * ROUNDS :]
        if len(tail) == cycle_steps * ROUNDS and _goes_round(tail, cycle_steps):
            return tuple(tail[-cycle_steps:])
    return ()


def _goes_round(tail: Sequence[Trace], cycle_steps: int) -> bool:
    thinking = tail[0].tokens_total != tail[-1].tokens_total
    # guard: loop-detection
    return not thinking and all(
        _mark(trace) == _mark(tail[index % cycle_steps]) for index, trace in enumerate(tail)
    )


def _mark(trace: Trace) -> tuple[str, int]:
    return trace.fingerprint, trace.outcome
