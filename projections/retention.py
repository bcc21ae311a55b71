"""Which rows leave the tables by which times, and in which groups. Pure.

What ended before a cut leaves. The cuts are commits of the state (`engine/retention/`), so who
replays deletes the same rows; what is open, or is held, or is referred to by what is open, stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from streams.model.retention import RetentionField


class PrunedKind(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one kind: what leaves with them is deleted in the same statement."""

    name: str
    """Names the queries in `sql/`: `list_old_…`, `count_old_…`, `list_there_…`, `delete_…`, and
    `list_actors_of_old_…` if `is_of_actors`."""
    states: Mapping[RetentionField, Sequence[str]]
    """By which cut they leave, and which of their states that is about; empty: any."""
    is_of_actors: bool = True
    is_numbered: bool = False
    """Whether a number beside its id names one of them."""


PRUNED: Final = (
    PrunedKind(
        name="episodes",
        states={
            RetentionField.DONE: ("done", "canceled"),
            RetentionField.FAILED: ("failed", "partially_failed"),
        },
    ),
    # After the episodes: an instance stays for as long as one of them does.
    PrunedKind(
        name="instances",
        states={
            RetentionField.DONE: ("done", "canceled"),
            RetentionField.FAILED: ("failed",),
        },
    ),
    PrunedKind(name="findings", states={RetentionField.FINDINGS: ("",)}, is_numbered=True),
    PrunedKind(name="outputs", states={RetentionField.OUTPUTS: ("",)}),
    PrunedKind(
        name="dead_letters", states={RetentionField.DEAD_LETTERS: ("",)}, is_of_actors=False
    ),
)


class PrunedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one kind, of one actor, in one state: they leave by the same time."""

    kind: PrunedKind
    actor_id: str
    state: str
    before: datetime


def groups_of(
    kind: PrunedKind, actors: Sequence[str], cuts: Mapping[tuple[str, str], datetime]
) -> Sequence[PrunedGroup]:
    """Return the groups of `kind` that have a cut.

    Args:
        cuts: what, such as `done`, and actor → the time; without an actor, that of all others.
    """
    return [
        PrunedGroup(kind=kind, actor_id=actor_id, state=state, before=before)
        for actor_id in actors
        for what, states in kind.states.items()
        if (before := _cut_of(cuts, what.value, actor_id)) is not None
        for state in states
    ]


def _cut_of(cuts: Mapping[tuple[str, str], datetime], what: str, actor_id: str) -> datetime | None:
    return cuts.get((what, actor_id), cuts.get((what, "")))  # guard: rows-by-own-cut
