"""What the journal holds for a function: the steps that a replay feeds it with. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from engine.errors import NondeterministicReplay
from streams.model.events import CheckpointSaved, EpisodeStarted, StepAnnounced, StepRecorded
from streams.ports.log import Recorded

CHANGED: Final = "changed:"
"""Begins the path of the step that says whether an episode follows a change; then comes its name.
"""

REFUSED: Final = msgspec.Raw(b"false")
"""The result of such a step if it does not."""

OF_A_CLASS: Final = (
    "a strategy class began it, and a function has taken the class's place: declare the function"
    " under a name of its own"
)


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded of a function since its newest checkpoint."""

    checkpoint: CheckpointSaved | None = None
    """None: it begins at the top, with nothing."""
    calls_before: int = 0
    """The number of the call that made the checkpoint: the next one counts on from there."""
    steps: tuple[StepRecorded, ...] = ()
    """In the order of recording."""
    announced: tuple[StepAnnounced, ...] = ()
    """What was announced and not recorded."""
    changes: Mapping[str, bool] = msgspec.field(default_factory=dict)
    """Change → whether the episode follows it, those from before the checkpoint included."""


def history_of(records: Iterable[Recorded]) -> History:
    """Return the history in an episode's `records`, oldest first.

    Raises `NondeterministicReplay` if a strategy class has begun the episode.
    """
    steps: list[StepRecorded] = []
    announced: dict[str, StepAnnounced] = {}
    changes: dict[str, bool] = {}
    checkpoint, calls_before = None, 0
    for record in records:
        for event in record.commit.events:
            match event:
                case StepRecorded(path="") | StepAnnounced(path=""):
                    raise NondeterministicReplay(OF_A_CLASS)
                case StepRecorded(path=path) if path.startswith(CHANGED):
                    # guard: unfollowed-change-stays
                    changes[path.removeprefix(CHANGED)] = event.result != REFUSED
                case StepRecorded():
                    steps.append(event)
                    announced.pop(event.path, None)
                case StepAnnounced():
                    announced[event.path] = event
                case CheckpointSaved():
                    if not steps:
                        raise NondeterministicReplay(OF_A_CLASS)
                    checkpoint, calls_before, steps = event, int(steps[-1].path), []
                case EpisodeStarted(fresh=True):
                    checkpoint, calls_before, steps = None, 0, []
                    announced, changes = {}, {}
                case _:
                    pass
    return History(
        checkpoint=checkpoint,
        calls_before=calls_before,
        steps=tuple(steps),
        announced=tuple(announced.values()),
        changes=changes,
    )
