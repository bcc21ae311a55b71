"""What the journal holds for a function or a class: the steps that a replay feeds it with. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from engine.episodes.episode import attempt_at
from streams.model.events import (
    GRANTED,
    CheckpointSaved,
    EpisodeBlocked,
    EpisodeResolved,
    EpisodeStarted,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.ports.log import Recorded

CHANGED: Final = "changed:"
"""Begins the path of the step that says whether an episode follows a change; then comes its name.
"""

M = TypeVar("M", StepRecorded, StepAnnounced)

REFUSED: Final = msgspec.Raw(b"false")
"""The result of such a step if it does not."""


_OF_AGENT: Final = re.compile(r"(?:^|\.)[a-z]")
"""Where the word of a path begins that a part of an agent has: `4.m2.1`."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded of a strategy since its newest checkpoint."""

    checkpoint: CheckpointSaved | None = None
    """None: it begins at the top, with nothing."""
    is_of_class: bool = False
    """Whether the first checkpoint came before any step: only classes keep such a one."""
    calls_before: int = 0
    """The number of the last call before the checkpoint: the next one counts on from there."""
    tokens_before: int = 0
    """Tokens used before these steps, over all attempts."""
    steps: tuple[StepRecorded, ...] = ()
    """In the order of recording."""
    announced: tuple[StepAnnounced, ...] = ()
    """What was announced and not recorded."""
    parts: tuple[StepRecorded, ...] = ()
    """What agents have done that have not ended yet: they ask for it in any order."""
    parts_announced: tuple[StepAnnounced, ...] = ()
    """What they have announced and not recorded."""
    waits: str = ""
    """Path of the call whose answer the episode waits for, which is no step yet; empty: of none."""
    changes: Mapping[str, bool] = msgspec.field(default_factory=dict)
    """Change → whether the episode follows it, those from before the checkpoint included."""


def is_part(path: str) -> bool:
    """Return whether a call was made within an agent; see `StepRecorded.path`."""
    return _OF_AGENT.search(path) is not None and not path.startswith((CHANGED, GRANTED))


def history_of(records: Iterable[Recorded], *, is_whole: bool = False) -> History:
    """Return the history in an episode's `records`, oldest first.

    `is_whole`: from the first checkpoint, which may have read the outside, and not from the newest.
    """
    steps: list[StepRecorded] = []
    announced: dict[str, StepAnnounced] = {}
    changes: dict[str, bool] = {}
    checkpoint, is_of_class, calls_before, tokens_before, waits = None, False, 0, 0, ""
    for record in records:
        for event in record.commit.events:
            match event:
                case StepRecorded(path=path) if path.startswith(CHANGED):
                    # guard: unfollowed-change-stays
                    changes[path.removeprefix(CHANGED)] = event.result != REFUSED
                case StepRecorded() if not event.is_grant:  # guard: grant-fed-to-nobody
                    steps.append(event)
                    announced.pop(event.path, None)
                case StepAnnounced():
                    announced[event.path] = event
                # guard: history-from-beginning
                case CheckpointSaved() if not (is_whole and checkpoint):
                    is_of_class = is_of_class or not (checkpoint or steps)
                    if steps:  # guard: paths-count-after-checkpoint
                        calls_before = int(attempt_at(steps[-1].path)[0])
                    tokens_before += _tokens(steps)  # guard: tokens-before-checkpoint-count
                    checkpoint, steps = event, []
                case EpisodeBlocked(parked=None) | EpisodeResolved():
                    waits = _call_of(event)
                case EpisodeStarted(fresh=True):
                    tokens_before += _tokens(steps)
                    checkpoint, is_of_class, calls_before, steps = None, False, 0, []
                    announced, changes = {}, {}
                case _:
                    pass
    own, parts = _apart(steps)
    own_announced, parts_announced = _apart(announced.values())
    ended = tuple(f"{step.path}." for step in steps if step.kind is StepKind.AGENT)
    return History(
        checkpoint=checkpoint,
        is_of_class=is_of_class,
        tokens_before=tokens_before,
        calls_before=calls_before,
        steps=tuple(own),
        announced=tuple(own_announced),
        parts=_not_within(ended, parts),
        parts_announced=_not_within(ended, parts_announced),
        waits=waits,
        changes=changes,
    )


def _apart(made: Iterable[M]) -> tuple[list[M], list[M]]:
    """Return those of `made` that the strategy has asked for itself, and those of its agents."""
    own: list[M] = []
    parts: list[M] = []
    for each in made:
        (parts if is_part(each.path) else own).append(each)
    return own, parts


def _not_within(ended: tuple[str, ...], parts: Iterable[M]) -> tuple[M, ...]:
    """Return `parts` without those of the agents that have `ended`, given by their prefixes."""
    # guard: ended-agent-runs-no-more
    return tuple([each for each in parts if not each.path.startswith(ended)])


def _call_of(event: EpisodeBlocked | EpisodeResolved) -> str:
    """Return the path of the call whose answer is waited for; empty: of none."""
    if isinstance(event, EpisodeResolved) or event.asks_for_grant:  # guard: grant-is-no-call
        return ""
    return event.path


def _tokens(steps: Iterable[StepRecorded]) -> int:
    return sum(step.cost_tokens for step in steps)
