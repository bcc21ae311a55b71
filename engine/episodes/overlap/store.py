"""Holds of subjects: read the key → read the journals that it names → decide → change the key.

The key changes at the revision that was read, so of two causes one is first. It names an episode
before that is opened. If its node dies in between, its cause comes again, and finds itself. If that
never comes, the next cause ends the named episode on its journal, as canceled, before it takes the
subject: so a node that was frozen meanwhile cannot open it any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.episodes import open as opening
from engine.episodes.cancel import ask_to_cancel
from engine.episodes.overlap import hold as rules
from engine.episodes.overlap.hold import Hold, SubjectHeld, encoded, hold_in
from streams.clock import SKEW_S, Clock
from streams.errors import Unavailable, UnreadableEvent
from streams.key_changes import Change, change_key
from streams.keys import overlap_key, start_key
from streams.model.commands import Cancel
from streams.model.events import EpisodeFinished, EpisodeOpened
from streams.model.triggers import Overlap
from streams.ports.all import Ports
from streams.ports.bucket import BucketEntry

UNOPENED_S: Final = 180
"""How long an episode that is not on its journal holds its subject, in seconds: far longer than its
cause takes to come again after a crash."""


@dataclass(frozen=True)
class Holds:
    """The holds of all subjects, in a stack's gates."""

    ports: Ports
    clock: Clock

    async def take(self, opened: EpisodeOpened, overlap: Overlap) -> EpisodeOpened | SubjectHeld:
        """Hold the subject of `opened`; return the opening, `held_by` another one if it waits.

        One that was opened before is returned as it is, and holds nothing anew.
        """
        key = self._key(opened)
        # First, so that nobody finds the episode in the key without it.
        await self.ports.gates.put(start_key(opened.episode_id), b"", ttl_s=UNOPENED_S)

        async def decide(entry: BucketEntry | None) -> Change[EpisodeOpened | SubjectHeld]:
            hold, same = _hold_of(entry), entry.value if entry is not None else None
            over = await self._over(hold)
            # What the key named once has a journal: it was opened, or ended unopened.
            if opened.episode_id in over:  # guard: overlap-ended-cause-displaces-nothing
                return opened, same
            # guard: overlap-displaced-stays-away
            if not rules.is_named(hold, opened) and await self._is_opened(opened):
                return opened, same
            ruling = rules.take(hold, opened, overlap, over=over)
            if isinstance(ruling, SubjectHeld):
                return ruling, same
            for each in ruling.cancels:
                await self._cancel(each, by=opened)
            return replace(opened, held_by=ruling.held_by), encoded(ruling.hold)

        return await change_key(self.ports.gates, key, decide)

    async def look(self, actor: str, expectation: str, subject: str) -> Hold | None:
        """Call the episode that follows what has ended, if any; return who holds the subject."""
        key = overlap_key(actor, expectation, subject)

        async def decide(entry: BucketEntry | None) -> Change[Hold | None]:
            before = _hold_of(entry)
            hold = rules.without_ended(before, await self._over(before))
            return hold, encoded(hold)

        hold = await change_key(self.ports.gates, key, decide)
        if hold is not None:
            await self._see_to(hold)
        return hold

    async def may_start(self, opened: EpisodeOpened) -> bool:
        """Return whether an episode that waited for the end of another one may start."""
        hold = await self.look(opened.actor_id, opened.expectation_id, opened.trigger.entity_id)
        return hold is None or hold.holder.episode_id == opened.episode_id

    async def give_back(self, opened: EpisodeOpened) -> None:
        """Free the subject of an episode that there is no room for, and that is not opened."""
        # First, as another node may be about to open it.
        # guard: overlap-others-opening-keeps-subject
        if not await self._end_unopened(opened, "there was no room for it"):
            return

        async def decide(entry: BucketEntry | None) -> Change[None]:
            return None, encoded(rules.without_ended(_hold_of(entry), {opened.episode_id}))

        await change_key(self.ports.gates, self._key(opened), decide)

    async def record_refusal(self, opened: EpisodeOpened, held: SubjectHeld) -> None:
        """Open and end the episode of a refused cause in one commit: who asked for it looks."""
        await self._end_unopened(opened, rules.in_words(opened, held))

    async def _over(self, hold: Hold | None) -> set[str]:
        """Return which episodes of a hold have ended; one that was never opened is ended here."""
        named = [] if hold is None else [hold.holder, *([hold.next] if hold.next else [])]
        return {each.episode_id for each in named if await self._has_ended(each)}

    async def _is_opened(self, opened: EpisodeOpened) -> bool:
        subject = self.ports.stack.episode(opened.episode_id)
        try:
            return await self.ports.log.last(subject) is not None
        except UnreadableEvent:  # Of a newer version, but there.
            return True

    async def _has_ended(self, opened: EpisodeOpened) -> bool:
        try:
            newest = await self.ports.log.last(self.ports.stack.episode(opened.episode_id))
        except UnreadableEvent:  # Of a newer version: it knows better.
            return False
        if newest is not None:
            # guard: overlap-ended-holds-nothing
            return any(isinstance(event, EpisodeFinished) for event in newest.commit.events)
        # guard: overlap-may-open-holds
        if await self.ports.gates.get(start_key(opened.episode_id)) is not None:
            return False
        # guard: overlap-unopened-ended-first
        return await self._end_unopened(opened, "its node was gone before it could be opened")

    async def _end_unopened(self, opened: EpisodeOpened, why: str) -> bool:
        """End an episode that has no journal; return False if it has one by now."""
        life = (opened, rules.unopened(why))
        return await opening.end_unopened(self.ports, life, at=self.clock.now())

    async def _cancel(self, other: EpisodeOpened, *, by: EpisodeOpened) -> None:
        why = f"episode {by.episode_id} takes its place"
        newest = await self.ports.log.last(self.ports.stack.episode(other.episode_id))
        if newest is None and await self._end_unopened(other, why):
            return
        id_ = other.episode_id
        command = Cancel(actor_id=other.actor_id, episode_id=id_, by=rules.OVERLAP, reason=why)
        await ask_to_cancel(self.ports, command, id=f"cancel.{id_}.{by.episode_id}")

    async def _see_to(self, hold: Hold) -> None:
        """Have a holder that follows another one begin; look again if it may never be opened."""
        holder, timers = hold.holder, self.ports.timers
        newest = await self.ports.log.last(self.ports.stack.episode(holder.episode_id))
        if hold.follows and opening.untouched(newest) is not None:
            timer = opening.place(holder.actor_id, holder.episode_id)
            await timers.send(timer, id=f"follows.{holder.episode_id}")
        elif newest is None and hold.next is not None:  # guard: overlap-kept-behind-unopened-starts
            at = self.clock.now() + timedelta(seconds=UNOPENED_S + SKEW_S)
            await timers.arm(rules.look_timer(hold.next), at=at)

    def _key(self, opened: EpisodeOpened) -> str:
        return overlap_key(opened.actor_id, opened.expectation_id, opened.trigger.entity_id)


def _hold_of(entry: BucketEntry | None) -> Hold | None:
    if entry is None:
        return None
    try:
        return hold_in(entry.value)
    except msgspec.ValidationError as error:
        why = f"a newer version has written it: {error}"
        raise Unavailable(entry.key, detail=why) from error
