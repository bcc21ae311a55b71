"""The Episode aggregate: its state, `decide` and `evolve`. Pure.

Its commands are in `engine.commands`, its statuses in `engine.status`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from engine.commands import (
    Announce,
    Answer,
    Begin,
    Block,
    Cancel,
    Command,
    Fail,
    Finish,
    Leave,
    Performed,
    Save,
)
from engine.errors import Rejected
from engine.loops import WINDOW_STEPS, Trace
from engine.status import RUNS, TRANSITIONS, Status
from streams.events import (
    CheckpointSaved,
    EndStatus,
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
from streams.log import Recorded
from streams.outputs import FAILURES, SETTLED, SUCCESSES, OutputOutcome, OutputResult


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
    blocked: EpisodeBlocked | None = None
    """What it waits for, or waited for last."""
    resolved: EpisodeResolved | None = None
    """How it was answered last."""
    outputs: tuple[str, ...] = ()
    """Keys of the outputs that its steps have proposed, or had announced."""
    outputs_settled: tuple[OutputOutcome, ...] = ()
    """What became of those that were settled when the step was recorded."""
    converged: EpisodeConverged | None = None
    deferred: EpisodeDeferred | None = None
    """What was carried out of that when it could first wait no longer."""
    finished: EpisodeFinished | None = None

    @property
    def outputs_left(self) -> tuple[str, ...]:
        """Keys of the outputs of its steps that may not be settled."""
        settled = {each.output_key for each in self.outputs_settled}
        return tuple(key for key in self.outputs if key not in settled)

    @property
    def turns_used(self) -> int:
        """Turns that led to a step, over all attempts. The one that ends it well is one more."""
        return self.steps_recorded

    @property
    def turn(self) -> int:
        """The number of the strategy's next turn, from 1; it counts anew when it begins anew."""
        return self.steps_recorded - self.steps_before + 1


UNOPENED: Final = Episode()

ALL_OUTPUTS_FAILED: Final = "all_outputs_failed"
"""Error class of an episode none of whose outputs could be delivered."""

CLASSES_TOLD_MAX: Final = 5
"""Classes of their errors that the words about its end name, at most."""


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
        case EpisodeOpened() | EpisodeConverged() | EpisodeDeferred():
            return command
        case Begin():
            return EpisodeStarted(attempt=episode.attempts + 1, **msgspec.structs.asdict(command))
        case Leave(node=node):
            return EpisodeLeft(node=node)
        case Finish():
            return _finished(episode, command)
        case Fail() | Cancel():
            return EpisodeFinished(
                status=EndStatus.FAILED if isinstance(command, Fail) else EndStatus.CANCELED,
                turns_used=episode.turns_used,
                tokens_used=episode.tokens_used,
                **msgspec.structs.asdict(command),
            )
        case _:
            return _step_event(episode, command)


def _step_event(
    episode: Episode, command: Announce | Performed | Save | Block | Answer
) -> EpisodeEvent:
    """Return what `command` leads to, which is about the last step or the next one."""
    last, said = episode.steps_recorded, msgspec.structs.asdict(command)
    match command:
        case Announce():
            return StepAnnounced(step_no=last + 1, **said)
        case Performed():
            return StepRecorded(step_no=last + 1, **said)
        case Block():
            return EpisodeBlocked(step_no=last + 1, **said)
        case Answer():
            return EpisodeResolved(step_no=last, **said)
        case Save():
            number = episode.checkpoints_saved
            return CheckpointSaved(checkpoint_no=number, step_no=last, **said)
        case _:
            assert_never(command)


def _finished(episode: Episode, command: Finish) -> EpisodeFinished:
    status, failed = end_of(command.outputs)
    classes = sorted({each.error_class for each in command.outputs if each.error_class})
    why, failed_all = ", ".join(classes[:CLASSES_TOLD_MAX]), status is EndStatus.FAILED
    return EpisodeFinished(
        status=status,
        turns_used=episode.turns_used + 1,
        tokens_used=episode.tokens_used,
        error_class=ALL_OUTPUTS_FAILED if failed_all else "",
        error_detail=f"{failed} could not be delivered: {why}" if failed_all else "",
        findings=command.findings,
        outputs=command.outputs,
    )


def end_of(outputs: Iterable[OutputOutcome]) -> tuple[EndStatus, int]:
    """Return how an episode ends whose outputs came to this, and how many of them failed.

    One that people rejected or canceled counts neither way.
    """
    outcomes = [each.outcome for each in outputs]
    failed = sum(each in FAILURES for each in outcomes)
    if not failed:
        return EndStatus.DONE, failed
    has_succeeded = any(each in SUCCESSES for each in outcomes)
    return EndStatus.PARTIALLY_FAILED if has_succeeded else EndStatus.FAILED, failed


def evolve(episode: Episode, event: EpisodeEvent) -> Episode:
    """Return `episode` after `event`. Never refuses: it has already happened."""
    match event:
        case EpisodeOpened():
            return replace(episode, status=Status.QUEUED, opened=event)
        case EpisodeStarted():
            return _started(episode, event)
        case EpisodeLeft():
            return replace(episode, status=Status.QUEUED)
        case EpisodeConverged():
            return replace(episode, status=Status.CONVERGING, converged=event)
        case EpisodeDeferred():
            return replace(episode, status=Status.DELIVERING, deferred=event)
        case EpisodeFinished(status=status):
            return replace(episode, status=Status(status.value), finished=event)
        case _:
            return _moved(episode, event)


def _moved(
    episode: Episode,
    event: StepAnnounced | StepRecorded | CheckpointSaved | EpisodeBlocked | EpisodeResolved,
) -> Episode:
    """Return `episode` after `event`, by which its strategy got ahead, or waits."""
    match event:
        case StepAnnounced():
            return _announced(episode, event)
        case StepRecorded():
            return _with_step(episode, event)
        case CheckpointSaved(checkpoint_no=number):
            return replace(
                episode,
                checkpoints_saved=number + 1,
                checkpoints_kept=episode.checkpoints_kept + 1,
            )
        case EpisodeBlocked():
            return replace(episode, status=Status.BLOCKED, blocked=event)
        case EpisodeResolved():
            return replace(episode, status=Status.QUEUED, resolved=event)
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
    crashed, is_decided = episode.status in RUNS, episode.converged is not None
    return replace(
        episode,
        status=Status.CONVERGING if is_decided else Status.RUNNING,
        node=event.node,
        attempts=event.attempt,
        crashes=episode.crashes + crashed,
        steps_before=episode.steps_recorded if event.fresh else episode.steps_before,
        traces=() if event.fresh else episode.traces,
        announced=None if event.fresh else episode.announced,
        effects=() if event.fresh else episode.effects,
        checkpoints_kept=0 if event.fresh else episode.checkpoints_kept,
    )


def _announced(episode: Episode, event: StepAnnounced) -> Episode:
    if event.output_key:
        outputs = (*episode.outputs, *({event.output_key} - set(episode.outputs)))
        return replace(episode, announced=event, outputs=outputs)
    effects = (*episode.effects, *({event.tool_name} - set(episode.effects)))
    return replace(episode, announced=event, effects=effects)


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
        outputs_settled=episode.outputs_settled + _settled_by(step),
        traces=(*episode.traces, trace)[-WINDOW_STEPS:],
        announced=None,
    )


def _settled_by(step: StepRecorded) -> tuple[OutputOutcome, ...]:
    """Return what became of the output of a step, if it was one and that was known."""
    if step.kind is not StepKind.OUTPUT or step.error_class:
        return ()
    said = msgspec.json.decode(step.result, type=OutputResult)
    if said.status not in SETTLED:
        return ()
    outcome = OutputOutcome(
        output_key=said.output_key, outcome=said.status, error_class=said.error_class
    )
    return (outcome,)
