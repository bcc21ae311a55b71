"""How to continue an episode from its journal: recovery, replay and sweep verdicts. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from engine.app.actions import (
    Action,
    Observe,
    OfAgent,
    ReportFindings,
    RequestApproval,
    SendOutput,
    Sleep,
    StartEpisode,
    Step,
    Synthesize,
    ToolCall,
    WaitFor,
)
from engine.app.actor import Actor, Policy
from engine.episodes.episode import ENDED, Episode, Status
from engine.errors import OUTCOME_UNKNOWN, NondeterministicReplay
from engine.runtime.catalog import Hindrance
from streams.json import raw
from streams.model.children import ChildStart
from streams.model.events import (
    EpisodeBlocked,
    EpisodeOpened,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.waits import Wait

ATTEMPTS_EXHAUSTED: Final = "attempts_exhausted"


class _Slept(msgspec.Struct, frozen=True):
    """The arguments of a wait that was a sleep."""

    until: datetime | None = None
    seconds: float | None = None


_slept: Final = msgspec.json.Decoder(_Slept)


Asked: TypeAlias = StepRecorded | StepAnnounced | EpisodeBlocked
"""The journal's record of an action that a strategy asked for."""


NO_SUCH_EPISODE: Final = "no_such_episode"

NO_SUCH_EXPECTATION: Final = "no_such_expectation"

NO_SUCH_REVISION: Final = "no_such_revision"


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """How the next node continues."""

    fresh: bool = False
    """Whether the strategy restarts."""
    error_class: str = ""
    """Why the episode ends instead; empty: it continues."""
    detail: str = ""


def attempts_of(opened: EpisodeOpened, *, declared: int) -> int:
    """Return how many crashes end an episode: what its expectation says, or whoever fired it."""
    return opened.attempts_max or declared  # guard: fired-attempts-hold


def take_over(
    episode: Episode,
    policy: Policy,
    *,
    attempts_max: int,
    repeatable: Callable[[str], bool],
    is_isolated: bool = False,
) -> Takeover:
    """Return how to continue `episode`, which has not ended.

    A stopped node is no crash. `repeatable` says whether a tool honours idempotency keys.
    `is_isolated`: suspects run alone, so that no crash of others ends one.
    """
    crashes = episode.crashes + 1
    if episode.status is not Status.RUNNING:  # Left on purpose, or only to be carried out.
        return Takeover()
    # guard: crash-in-company-ends-nobody
    is_own = episode.is_alone or not is_isolated or attempts_max == 1
    if crashes >= attempts_max and is_own:  # guard: attempts-run-out
        return Takeover(
            error_class=ATTEMPTS_EXHAUSTED,
            detail=f"{crashes} nodes crashed while running it, without a step recorded between; the"
            f" limit is {attempts_max}",
        )
    if policy == "resume":
        return Takeover()
    if policy == "fail":
        return Takeover(error_class="orphaned", detail=f"{episode.node} crashed while running it")
    unrepeatable = [tool for tool in episode.effects if not repeatable(tool)]
    if unrepeatable:
        return Takeover(
            error_class=OUTCOME_UNKNOWN,
            detail=f"it cannot begin anew: {', '.join(unrepeatable)} may have had effects, and the"
            " tool does not say that it honours idempotency keys",
        )
    return Takeover(fresh=True)


def is_suspect(episode: Episode, *, attempts_max: int) -> bool:
    """Return whether `episode` must run alone: the next crash would end it.

    One that may crash but once ends with a crash in company, too.
    """
    if episode.status is not Status.RUNNING or attempts_max == 1:
        return False
    crashes = episode.crashes + 1
    has_had_it = episode.is_alone and crashes >= attempts_max
    return crashes >= attempts_max - 1 and not has_had_it


def check_same(recorded: Asked, *, asked: str, action: Step | OfAgent, is_strict: bool) -> None:
    """Raise `NondeterministicReplay` unless the record stands for `action`.

    `asked` is the fingerprint of `action`.
    """
    if recorded.fingerprint == asked:  # guard: replay-asks-the-same
        return
    if stands(recorded, action) and not is_strict:
        return
    was, asks = text_of_step(recorded), kind_of(action)
    other = " with other values" if asks == was else ""
    raise NondeterministicReplay(
        f"call {recorded.path} was {was}; the replay asks for {asks}{other}"
    )


def is_alike(recorded: Asked, action: Step | OfAgent) -> bool:
    """Return whether two calls can differ in their values alone."""
    match recorded, action:
        case EpisodeBlocked(), _:
            return _is_alike_block(recorded, action)
        case _, ToolCall(capability=capability, action=name):
            return recorded.tool_name == f"{capability}.{name}"
        case StepAnnounced(), Sleep():
            return recorded.until is not None
        case StepAnnounced(), SendOutput() | ReportFindings():
            return not recorded.is_call
        case StepAnnounced(), _:
            return isinstance(action, Synthesize) and recorded.asks is StepKind.SYNTHESIS
        case _, Sleep() | WaitFor():
            is_sleep = recorded.kind is StepKind.WAIT and bool(_sleep_in(recorded.args))
            is_wait = recorded.kind is StepKind.WAIT and not is_sleep
            return is_sleep if isinstance(action, Sleep) else is_wait
        case _, SendOutput(intent=intent):
            return recorded.tool_name == f"{StepKind.OUTPUT}.{intent.adapter}"
        case _, Observe():  # The time, and what is read of findings, are observations, too.
            return recorded.kind is StepKind.OBSERVATION and not recorded.tool_name
        case _, StartEpisode() | OfAgent():
            return text_of_step(recorded) == kind_of(action)  # guard: child-record-stands
        case _:
            return recorded.kind == kind_of(action)


def _is_alike_block(blocked: EpisodeBlocked, action: Step | OfAgent) -> bool:
    is_sleep = blocked.wait is not None and not blocked.wait.ref
    return is_sleep if isinstance(action, Sleep) else blocked.reason == kind_of(action)


def stands(recorded: Asked, action: Step | OfAgent) -> bool:
    """Return whether a record answers `action`, though their values differ.

    What people have agreed to, and what a signal was for, they have not of anything else. What was
    announced and is not recorded would be made with other values than the announced ones; a sleep
    ends when it was announced to.
    """
    if not is_alike(recorded, action):
        return False
    match recorded, action:
        case StepAnnounced(), _:  # What a model was asked is reserved anew.
            return isinstance(action, Sleep | Synthesize)  # guard: other-prompt-asked-anew
        case StepRecorded(), RequestApproval(plan=plan):
            return recorded.args == raw(plan)  # guard: approved-plan-stands
        case StepRecorded(), WaitFor(ref=ref):
            return recorded.args == raw({"ref": ref})  # guard: awaited-ref-stands
        case EpisodeBlocked(wait=Wait(ref=was)), WaitFor(ref=ref):
            return was == ref
        case EpisodeBlocked(), RequestApproval():
            return False
        case _:
            return True


def text_of_step(recorded: Asked) -> str:
    """Return `recorded` as text, without values."""
    match recorded:
        # guard: recorded-sleep-called-sleep
        case StepRecorded(kind=StepKind.WAIT, args=args) if slept := _sleep_in(args):
            return slept
        case StepRecorded(kind=kind, tool_name=tool_name):
            return f"{kind} {tool_name}".strip()
        case StepAnnounced(until=datetime() as until):
            return _sleep_until(until)
        case StepAnnounced(findings=(_, *_)):
            return StepKind.REPORT.value
        case StepAnnounced(reserved_usd=Decimal(), tool_name=tool_name):
            return f"{recorded.asks} {tool_name}".strip()
        case StepAnnounced(child=ChildStart(), tool_name=tool_name):
            return f"{StepKind.EPISODE} {tool_name}"
        case StepAnnounced(tool_name=tool_name):
            return f"{StepKind.TOOL_CALL} {tool_name}"
        case EpisodeBlocked(wait=Wait(ref="", expires_at=datetime() as until) as wait):
            return _sleep_of(wait.seconds) if wait.seconds else _sleep_until(until)
        case EpisodeBlocked(wait=Wait(ref=""), for_children=True):
            return StepKind.EPISODE.value
        case EpisodeBlocked(reason=reason):
            return reason.value


def _sleep_in(args: msgspec.Raw) -> str:
    """Return the sleep that a wait was, by its arguments; nothing: it waited for a signal."""
    slept = _slept.decode(args)
    if slept.seconds is not None:
        return _sleep_of(slept.seconds)
    return "" if slept.until is None else _sleep_until(slept.until)


def _sleep_until(until: datetime) -> str:
    return f"sleep until {until:%Y-%m-%d %H:%M:%S} UTC"


def _sleep_of(seconds: float) -> str:
    return f"sleep of {seconds:g} s"


def kind_of(action: Action | OfAgent) -> str:
    """Return `action` as text, without values: some are secret."""
    match action:
        case ToolCall(capability=capability, action=name):
            return f"{StepKind.TOOL_CALL} {capability}.{name}"
        case Sleep(seconds=seconds):
            return _sleep_of(seconds)
        case StartEpisode(actor=actor, expectation=expectation):
            return f"{StepKind.EPISODE} {actor}.{expectation}"
        case OfAgent(what=what, name=name):
            return f"{what} {name}"
        case _:
            return str(action.__struct_config__.tag)


def why_cannot_run(actor: Actor, episode: Episode) -> Hindrance | None:
    """Return why a node with this version of `actor` cannot run the episode; None: it can."""
    if episode.opened is None:
        return Hindrance(NO_SUCH_EPISODE, "the journal holds no such episode")
    if episode.status in ENDED:
        return None
    expectation = actor.expectations.get(episode.opened.expectation_id)
    if expectation is None:
        detail = f"the actor here has no expectation {episode.opened.expectation_id!r}"
        return Hindrance(NO_SUCH_EXPECTATION, detail)
    kept, version = episode.schema_version, expectation.state_schema.version
    if kept > version:
        detail = f"its state is of version {kept}, this node knows {version}"
        return Hindrance("newer_state", detail)
    return None


class SweepVerdict(StrEnum):
    """What a sweep finds out about an episode, or has done."""

    RECOVERED = "recovered"
    """No node would have continued it; a command was sent."""
    CALLED = "called"
    """A command for it is already queued."""
    HELD = "held"
    """Some node runs it, or did a moment ago."""
    WAITING = "waiting"
    """It waits for people or a signal, and its timer is armed."""
    ENDED = "ended"
    """There is nothing left to do; the tables lag."""
    UNREADABLE = "unreadable"
    """This version cannot read its journal; a newer one must sweep it."""
