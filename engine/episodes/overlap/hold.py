"""Which episode holds a subject of an expectation, and which one follows it. Pure.

The hold is a key in a bucket. Whether an episode still holds is on its journal: a hold names it
from before it opens, and stands until it has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.episodes.open import without_payload
from engine.episodes.overlap import places
from engine.episodes.overlap.places import Places
from streams.model.events import EndStatus, EpisodeFinished, EpisodeOpened
from streams.model.triggers import EpisodeTrigger, ManualTrigger, Overlap
from streams.ports.timers import Timer

OVERLAP: Final = "overlap"
"""Reason of a refusal, as counted, and error class of an episode that ended unopened. Purpose of
the timer by which a subject is looked at after an end; its key is the episode."""


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who holds a subject."""

    holder: EpisodeOpened
    """Without what only its strategy needs."""
    next: EpisodeOpened | None = None
    """The one that starts once the holder has ended."""
    follows: str = ""
    """The episode whose end started the holder; empty: it started at once."""

    @property
    def places(self) -> Places:
        """The same by id."""
        next_id = self.next.episode_id if self.next is not None else ""
        return Places(holder=self.holder.episode_id, next=next_id, follows=self.follows)


class SubjectHeld(msgspec.Struct, frozen=True):
    """The cause is refused: this episode holds its subject."""

    episode_id: str


class SubjectTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The cause opens its episode, once the hold is stored."""

    hold: Hold
    held_by: str = ""
    """The episode after whose end it starts; empty: it starts at once."""
    cancels: tuple[EpisodeOpened, ...] = ()
    """Those that are canceled for it, before the hold is stored."""


def is_named(hold: Hold | None, opened: EpisodeOpened) -> bool:
    """Return whether an episode holds, or follows."""
    return any(each.episode_id == opened.episode_id for each in _named(hold))


def take(
    hold: Hold | None, opened: EpisodeOpened, overlap: Overlap, *, over: Collection[str]
) -> SubjectTaken | SubjectHeld:
    """Return what a cause comes to; `over` are the episodes of `hold` that have ended."""
    before = hold.places if hold is not None else None
    taken = places.take(before, opened.episode_id, overlap, over=over)
    if taken is None:
        left = places.without_ended(before, over)
        assert left is not None, "nothing holds the subject"
        return SubjectHeld(left.holder)
    known = {each.episode_id: each for each in (slim(opened), *_named(hold))}
    return SubjectTaken(
        hold=_hold_of(taken.places, known),
        held_by=taken.held_by,
        cancels=tuple(known[each] for each in taken.cancels),
    )


def without_ended(hold: Hold | None, over: Collection[str]) -> Hold | None:
    """Return what is left of a hold once the episodes `over` have ended; None: nobody holds."""
    left = places.without_ended(hold.places, over) if hold is not None else None
    known = {each.episode_id: each for each in _named(hold)}
    return _hold_of(left, known) if left is not None else None


def of_open(opened: Sequence[EpisodeOpened]) -> Hold | None:
    """Return the hold of the episodes of one subject that are open, in order, if its key is lost.

    Those may be slim, but for what they are `held_by`.
    """
    left = places.of_open([(each.episode_id, each.held_by) for each in opened])
    known = {each.episode_id: slim(each) for each in opened}
    return _hold_of(left, known) if left is not None else None


def _named(hold: Hold | None) -> Sequence[EpisodeOpened]:
    if hold is None:
        return ()
    return (hold.holder, hold.next) if hold.next is not None else (hold.holder,)


def _hold_of(left: Places, known: Mapping[str, EpisodeOpened]) -> Hold:
    return Hold(holder=known[left.holder], next=known.get(left.next), follows=left.follows)


def hold_in(value: bytes | None) -> Hold | None:
    """Return the hold that a key has, if any; `msgspec.ValidationError`: of a newer version."""
    return msgspec.json.decode(value, type=Hold) if value else None


def encoded(hold: Hold | None) -> bytes | None:
    """Return what a key with a hold has; None: it goes."""
    return msgspec.json.encode(hold) if hold is not None else None


def slim(opened: EpisodeOpened) -> EpisodeOpened:
    """Return an opening without what only its strategy needs."""
    bare = without_payload(opened)
    return replace(bare, metadata={}, overrides=None, held_by="")


def is_asked_for(opened: EpisodeOpened) -> bool:
    """Return whether a person or program waits for the episode, and is to see what holds it."""
    return isinstance(opened.trigger, ManualTrigger | EpisodeTrigger)  # guard: child-told-of-holder


def in_words(opened: EpisodeOpened, held: SubjectHeld) -> str:
    """Return which episode holds the subject of `opened`."""
    about = f"{opened.subject_kind} {opened.trigger.entity_id!r}" if opened.subject_kind else ""
    return f"episode {held.episode_id} holds {about or 'it'} until it ends"


def unopened(why: str) -> EpisodeFinished:
    """Return the end of an episode that never starts."""
    return EpisodeFinished(status=EndStatus.CANCELED, error_class=OVERLAP, error_detail=why)


def look_timer(opened: EpisodeOpened) -> Timer:
    """Return the timer by which a node looks at a subject: an episode has ended, or waits."""
    payload = {"expectation": opened.expectation_id, "subject": opened.trigger.entity_id}
    return Timer(actor=opened.actor_id, purpose=OVERLAP, key=opened.episode_id, payload=payload)
