"""The Episode aggregate: its state, its commands, `decide` and `evolve`. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from engine.errors import Rejected
from engine.loops import WINDOW_STEPS, Trace
from streams.events import (
    CheckpointSaved,
    EndStatus,
    EpisodeConverged,
    EpisodeEvent,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeStarted,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.findings import FindingOutcome
from streams.json import NOTHING
from streams.log import Recorded


class Status(StrEnum):
    """Where an episode is in its life."""

    UNOPENED = "unopened"
    QUEUED = "queued"
    RUNNING = "running"
    CONVERGING = "converging"
    """What is true has been decided; its findings are being applied."""
    DONE = "done"
    FAILED = "failed"
    PARTIALLY_FAILED = "partially_failed"
    CANCELED = "canceled"


RUNS: Final = frozenset({Status.RUNNING, Status.CONVERGING})
"""A node has it. If another one takes over, the first has crashed."""

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
        EpisodeConverged: Status.CONVERGING,
        EpisodeFinished: None,
    },
    Status.CONVERGING: {EpisodeStarted: Status.CONVERGING, EpisodeFinished: None},
    Status.DONE: {},
    Status.FAILED: {},
    Status.PARTIALLY_FAILED: {},
    Status.CANCELED: {},
}
"""Status → event → status: every legal transition, and the source of the diagram in the docs.

`EpisodeFinished` leads to the status it carries, which is one of `ENDED`; where a status stands, to
no other.
"""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode's events add up to."""

    status: Status = Status.UNOPENED
    opened: EpisodeOpened | None = None
    attempts: int = 0
    crashes: int = 0
    """Attempts whose node neither finished nor left."""
    node: str = ""
    steps_recorded: int = 0
    steps_before: int = 0
    """Those recorded before the strategy last began anew; its turns count from there."""
    tokens_used: int = 0
    wall_used_s: float = 0.0
    """Seconds that its steps took, over all attempts. The journal cannot tell thinking from waiting
    for the log, so what lies between steps is left to the clock of the attempt that runs."""
    traces: tuple[Trace, ...] = ()
    """The newest steps, as far as loops care."""
    announced: StepAnnounced | None = None
    """A side effect that was announced and not recorded yet."""
    effects: tuple[str, ...] = ()
    """Tools with side effects that were announced since the strategy last began anew."""
    checkpoints_saved: int = 0
    checkpoints_kept: int = 0
    """Those since the strategy last began anew; without one, it has no state to go on from."""
    converged: EpisodeConverged | None = None
    finished: EpisodeFinished | None = None

    @property
    def turns_used(self) -> int:
        """Turns that led to a step, over all attempts. The one that ends it well is one more."""
        return self.steps_recorded

    @property
    def turn(self) -> int:
        """The number of the strategy's next turn, from 1; it counts anew when it begins anew."""
        return self.steps_recorded - self.steps_before + 1


UNOPENED: Final = Episode()


class Performed(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was done and what it brought back; the fields are `StepRecorded`'s."""

    kind: StepKind
    fingerprint: str
    tool_name: str = ""
    args: msgspec.Raw = NOTHING
    result: msgspec.Raw = NOTHING
    result_shown: msgspec.Raw = NOTHING
    error_class: str = ""
    error_detail: str = ""
    cost_tokens: int = 0
    cost_ms: int = 0
    model: str = ""


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """A node begins, or takes over."""

    node: str
    claim_revision: int = 0
    fresh: bool = False


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    """The node is going down."""

    node: str


class Announce(msgspec.Struct, frozen=True, kw_only=True):
    """A side effect is about to happen."""

    fingerprint: str
    tool_name: str
    idempotency_key: str


class Save(msgspec.Struct, frozen=True, kw_only=True):
    """The state is to be kept."""

    phase: str
    state: msgspec.Raw
    schema_version: int = 1


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided has been carried out, or nothing was to be."""

    findings: tuple[FindingOutcome, ...] = ()


class Fail(msgspec.Struct, frozen=True, kw_only=True):
    """It cannot go on."""

    error_class: str
    error_detail: str = ""


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """It is not wanted any more."""

    error_class: str
    error_detail: str = ""


Command: TypeAlias = (
    EpisodeOpened
    | Begin
    | Leave
    | Announce
    | Performed
    | Save
    | EpisodeConverged
    | Finish
    | Fail
    | Cancel
)
"""Opening and convergence are decided elsewhere, by the gate and by the strategy."""


def decide(episode: Episode, command: Command) -> EpisodeEvent:
    """Return what happens if `command` is put to `episode`.

    Raises:
        Rejected: the command does not fit the state.
    """
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
        case EpisodeOpened() | EpisodeConverged():
            return command
        case Begin():
            return EpisodeStarted(attempt=episode.attempts + 1, **msgspec.structs.asdict(command))
        case Leave(node=node):
            return EpisodeLeft(node=node)
        case Announce():
            return StepAnnounced(
                step_no=episode.steps_recorded + 1, **msgspec.structs.asdict(command)
            )
        case Performed():
            return StepRecorded(
                step_no=episode.steps_recorded + 1, **msgspec.structs.asdict(command)
            )
        case Save():
            return CheckpointSaved(
                checkpoint_no=episode.checkpoints_saved,
                step_no=episode.steps_recorded,
                **msgspec.structs.asdict(command),
            )
        case Finish(findings=findings):
            return EpisodeFinished(
                status=EndStatus.DONE,
                turns_used=episode.turns_used + 1,
                tokens_used=episode.tokens_used,
                findings=findings,
            )
        case Fail() | Cancel():
            return EpisodeFinished(
                status=EndStatus.FAILED if isinstance(command, Fail) else EndStatus.CANCELED,
                turns_used=episode.turns_used,
                tokens_used=episode.tokens_used,
                **msgspec.structs.asdict(command),
            )
        case _:
            assert_never(command)


def evolve(episode: Episode, event: EpisodeEvent) -> Episode:
    """Return `episode` after `event`. Never refuses: it has already happened."""
    match event:
        case EpisodeOpened():
            return replace(episode, status=Status.QUEUED, opened=event)
        case EpisodeStarted():
            return _started(episode, event)
        case EpisodeLeft():
            return replace(episode, status=Status.QUEUED)
        case StepAnnounced(tool_name=tool):
            effects = (*episode.effects, *({tool} - set(episode.effects)))
            return replace(episode, announced=event, effects=effects)
        case StepRecorded():
            return _with_step(episode, event)
        case CheckpointSaved(checkpoint_no=number):
            return replace(
                episode,
                checkpoints_saved=number + 1,
                checkpoints_kept=episode.checkpoints_kept + 1,
            )
        case EpisodeConverged():
            return replace(episode, status=Status.CONVERGING, converged=event)
        case EpisodeFinished(status=status):
            return replace(episode, status=Status(status.value), finished=event)
        case _:
            assert_never(event)


def fold(records: Iterable[Recorded], episode: Episode = UNOPENED) -> Episode:
    """Return `episode` after all of `records`, oldest first."""
    for record in records:
        for event in record.commit.events:
            if isinstance(event, EpisodeEvent):
                episode = evolve(episode, event)
    return episode


def _started(episode: Episode, event: EpisodeStarted) -> Episode:
    crashed = episode.status in RUNS
    return replace(
        episode,
        status=Status.CONVERGING if episode.status is Status.CONVERGING else Status.RUNNING,
        node=event.node,
        attempts=event.attempt,
        crashes=episode.crashes + crashed,
        steps_before=episode.steps_recorded if event.fresh else episode.steps_before,
        traces=() if event.fresh else episode.traces,
        announced=None if event.fresh else episode.announced,
        effects=() if event.fresh else episode.effects,
        checkpoints_kept=0 if event.fresh else episode.checkpoints_kept,
    )


def _outcome(step: StepRecorded) -> bytes:
    brought_back = b"\0".join((bytes(step.result), step.error_class.encode()))
    return hashlib.blake2b(brought_back, digest_size=16).digest()


def _with_step(episode: Episode, step: StepRecorded) -> Episode:
    tokens_used = episode.tokens_used + step.cost_tokens
    trace = Trace(step.fingerprint, tokens_used, _outcome(step))
    return replace(
        episode,
        steps_recorded=step.step_no,
        tokens_used=tokens_used,
        wall_used_s=episode.wall_used_s + step.cost_ms / 1000,
        traces=(*episode.traces, trace)[-WINDOW_STEPS:],
        announced=None,
    )
