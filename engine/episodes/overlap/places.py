"""The two places of a subject, by id: who holds it, and who follows. Pure.

    allow        every cause begins, and nothing holds anything
    skip         a cause is refused while the subject is held
    buffer_one   one waits for the end of what holds it; further ones are refused
    cancel_other what holds it and what waits are canceled, and the new one follows

Episodes of an expectation have them, and instances of a workflow, each under a key of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from streams.model.triggers import Overlap

DISPLACED_MAX: Final = 16
"""Most displaced ones that are remembered: each is told within a moment."""


class Places(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who has the places of one subject."""

    holder: str
    next: str = ""
    """Starts once the holder has ended; empty: nobody."""
    follows: str = ""
    """Whose end started the holder; empty: it started at once."""
    displaced: tuple[str, ...] = ()
    """The latest of those that were to follow, and whose place another one has taken."""


class PlaceTaken(msgspec.Struct, frozen=True, kw_only=True):
    """There is a place for the cause."""

    places: Places
    held_by: str = ""
    """After whose end it starts; empty: it starts at once."""
    cancels: tuple[str, ...] = ()
    """Those that are canceled for it."""


def take(
    places: Places | None, own: str, overlap: Overlap, *, over: Collection[str]
) -> PlaceTaken | None:
    """Return the place that the cause of `own` takes, once those `over` have ended; None: none."""
    places = without_ended(places, over)
    if places is None:
        return PlaceTaken(places=Places(holder=own))
    # Its node may have died before it had begun.
    if places.holder == own:  # guard: overlap-repeat-holds-subject
        return PlaceTaken(places=places)
    if places.next == own:
        return PlaceTaken(places=places, held_by=places.holder)
    if overlap == "cancel_other":
        after = replace(places, next=own, displaced=_displaced(places))
        others = tuple(filter(None, (places.holder, places.next)))
        return PlaceTaken(places=after, held_by=places.holder, cancels=others)
    if overlap == "buffer_one" and not places.next:  # guard: overlap-one-kept
        return PlaceTaken(places=replace(places, next=own), held_by=places.holder)
    return None  # guard: overlap-open-holds-subject


def without_ended(places: Places | None, over: Collection[str]) -> Places | None:
    """Return what is left once those `over` have ended; None: nobody holds the subject."""
    if places is None:
        return None
    if places.next in over:
        places = replace(places, next="")
    if places.holder not in over:
        return places
    if not places.next:
        return None
    return Places(holder=places.next, follows=places.holder, displaced=places.displaced)


def of_open(opened: Sequence[tuple[str, str]]) -> Places | None:
    """Return the places of those of one subject that are open, if their key is lost; None: none.

    In the order of their openings, each with the one after whose end it was to start, or "". The
    newest one has a place in any case: it was opened because it got one.
    """
    if not opened:
        return None
    after = dict(opened)
    newest, held_by = opened[-1]
    # guard: rebuilt-follower-waits
    holder, next_ = (held_by, newest) if held_by in after else (newest, "")
    others = tuple(each for each in after if each not in (holder, next_))
    return Places(
        holder=holder, next=next_, follows=after[holder], displaced=others[-DISPLACED_MAX:]
    )


def _displaced(places: Places) -> tuple[str, ...]:
    found = (*places.displaced, places.next) if places.next else places.displaced
    return found[-DISPLACED_MAX:]
