"""How to go on from a journal: where to start, and whether a replay is still the same. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from engine.actions import Action, Step, ToolCall
from engine.episode import Episode
from engine.errors import NondeterministicReplay
from engine.status import Status
from streams.events import (
    CheckpointSaved,
    EpisodeBlocked,
    EpisodeStarted,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.log import Recorded

ATTEMPTS_MAX: Final = 3
"""Crashes that end an episode, by default."""

ATTEMPTS_EXHAUSTED: Final = "attempts_exhausted"

Policy: TypeAlias = Literal["resume", "restart", "fail"]
"""What becomes of an episode whose node crashed. `resume`: fold what is recorded and go on.
`restart`: begin anew, as another attempt at the same episode. `fail`: end as `orphaned`."""

POLICIES: Final[tuple[str, ...]] = get_args(Policy)


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """How the next node goes on."""

    fresh: bool = False
    """Whether the strategy begins anew."""
    error_class: str = ""
    """Why the episode ends instead; empty when it goes on."""
    detail: str = ""


def take_over(
    episode: Episode,
    policy: Policy,
    *,
    attempts_max: int,
    repeatable: Callable[[str], bool],
) -> Takeover:
    """Return how to go on with `episode`, which has not ended.

    Args:
        episode: as its journal stands, before the new node's start.
        policy: what its expectation, or the app, wants after a crash.
        attempts_max: crashes that end the episode. Leaving on purpose is no crash.
        repeatable: whether a tool, by `capability.action`, honours idempotency keys.
    """
    crashes = episode.crashes + 1
    if episode.status is not Status.RUNNING:  # Left on purpose, or only to be carried out.
        return Takeover()
    if crashes >= attempts_max:
        return Takeover(
            error_class=ATTEMPTS_EXHAUSTED,
            detail=f"{crashes} nodes crashed while running it; the limit is {attempts_max}",
        )
    if policy == "resume":
        return Takeover()
    if policy == "fail":
        return Takeover(error_class="orphaned", detail=f"{episode.node} crashed while running it")
    unrepeatable = [tool for tool in episode.effects if not repeatable(tool)]
    if unrepeatable:
        return Takeover(
            error_class="outcome_unknown",
            detail=f"it cannot begin anew: {', '.join(unrepeatable)} may have had effects, and the"
            " tool does not say that it honours idempotency keys",
        )
    return Takeover(fresh=True)


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay needs: the newest kept state, and the steps to fold into it."""

    checkpoint: CheckpointSaved | None = None
    """None: nothing was kept since the strategy began, so nothing was recorded either."""
    steps: tuple[StepRecorded, ...] = ()
    """Those after the checkpoint, in order."""
    steps_before: int = 0
    """Steps recorded before the strategy last began anew."""
    tokens_before: int = 0
    """Tokens used up to the checkpoint."""


def tail(records: Iterable[Recorded]) -> Tail:
    """Return the tail of an episode's `records`, oldest first."""
    found, steps = Tail(), list[StepRecorded]()
    for record in records:
        for event in record.commit.events:
            match event:
                case StepRecorded():
                    steps.append(event)
                case CheckpointSaved() | EpisodeStarted(fresh=True):
                    found = _begin_at(found, event, steps)
                    steps = []
                case _:
                    pass
    return replace(found, steps=tuple(steps))


def _begin_at(
    found: Tail, event: CheckpointSaved | EpisodeStarted, steps: list[StepRecorded]
) -> Tail:
    tokens_before = found.tokens_before + sum(step.cost_tokens for step in steps)
    if isinstance(event, CheckpointSaved):
        return replace(found, checkpoint=event, tokens_before=tokens_before)
    steps_before = steps[-1].step_no if steps else found.steps_before
    if found.checkpoint is not None:
        steps_before = max(steps_before, found.checkpoint.step_no)
    return Tail(steps_before=steps_before, tokens_before=tokens_before)


Asked: TypeAlias = StepRecorded | StepAnnounced | EpisodeBlocked
"""What the journal holds of an action that a strategy has asked for."""


def check_same(recorded: Asked, *, asked: str, action: Step) -> None:
    """Check that a replay asks for what the journal holds.

    Args:
        recorded: the step on the journal, or what is to be the next one.
        asked: the fingerprint of what the strategy asks for now.
        action: what it asks for now, for the message.

    Raises:
        NondeterministicReplay: it asks for something else.
    """
    if recorded.fingerprint == asked:
        return
    raise NondeterministicReplay(
        f"step {recorded.step_no} was {said_of(recorded)} ({recorded.fingerprint[:12]}…);"
        f" the replay asks for {kind_of(action)} ({asked[:12]}…)"
    )


def said_of(recorded: Asked) -> str:
    """Return what `recorded` was, without its values."""
    match recorded:
        case StepRecorded(kind=kind, tool_name=tool_name):
            return f"{kind} {tool_name}".strip()
        case StepAnnounced(tool_name=tool_name):
            return f"{StepKind.TOOL_CALL} {tool_name}"
        case EpisodeBlocked(reason=reason):
            return reason.value


def kind_of(action: Action) -> str:
    """Return what `action` is, without its values: some of them are to be stored nowhere."""
    if isinstance(action, ToolCall):
        return f"{StepKind.TOOL_CALL} {action.capability}.{action.action}"
    return str(action.__struct_config__.tag)
