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
from engine.episodes.overlap.hold import Hold, SubjectHeld, hold_in
from engine.runtime.store import append_first
from streams.clock import SKEW_S, Clock
from streams.errors import RevisionConflict, Unavailable, UnreadableEvent
from streams.keys import overlap_key, start_key
from streams.model.commands import Cancel
from streams.model.events import EpisodeFinished, EpisodeOpened
from streams.model.triggers import Overlap
from streams.ports.all import Ports
from streams.ports.bucket import BucketEntry
from streams.ports.log import Commit
from streams.tracing import traceparent

UNOPENED_S: Final = 180
"""How long an episode that is not on its journal holds its subject, in seconds: far longer than its
cause takes to come again after a crash."""

TRIES_MAX: Final = 16
"""Most tries for one subject while others change its key at the same time."""


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
        for _ in range(TRIES_MAX):
            entry, hold = await self._read(key)
            over = await self._over(hold)
            # What the key named once has a journal: it was opened, or ended unopened.
            if opened.episode_id in over:  # guard: overlap-ended-cause-displaces-nothing
                return opened
            # guard: overlap-displaced-stays-away
            if not rules.is_named(hold, opened) and await self._is_opened(opened):
                return opened
            ruling = rules.take(hold, opened, overlap, over=over)
            if isinstance(ruling, SubjectHeld):
                return ruling
            for each in ruling.cancels:
                await self._cancel(each, by=opened)
            if await self._change(key, ruling.hold, entry, was=hold):
                return replace(opened, held_by=ruling.held_by)
        raise Unavailable(key, detail="others change it at the same time")

    async def look(self, actor: str, expectation: str, subject: str) -> Hold | None:
        """Call the episode that follows what has ended, if any; return who holds the subject."""
        key = overlap_key(actor, expectation, subject)
        for _ in range(TRIES_MAX):
            entry, before = await self._read(key)
            if before is None:
                return None
            hold = rules.without_ended(before, await self._over(before))
            if await self._change(key, hold, entry, was=before):
                if hold is not None:
                    await self._see_to(hold)
                return hold
        raise Unavailable(key, detail="others change it at the same time")

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
        key = self._key(opened)
        for _ in range(TRIES_MAX):
            entry, hold = await self._read(key)
            if hold is None:
                return
            if await self._change(key, rules.without(hold, opened.episode_id), entry, was=hold):
                return
        raise Unavailable(key, detail="others change it at the same time")

    async def record_refusal(self, opened: EpisodeOpened, held: SubjectHeld) -> None:
        """Open and end the episode of a refused cause in one commit: who asked for it looks."""
        await self._end_unopened(opened, rules.in_words(opened, held))

    async def _read(self, key: str) -> tuple[BucketEntry | None, Hold | None]:
        entry = await self.ports.gates.get(key)
        try:
            return entry, hold_in(entry.value if entry else None)
        except msgspec.ValidationError as error:
            raise Unavailable(key, detail=f"a newer version has written it: {error}") from error

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
        commit = Commit(
            id=f"unopened.{opened.episode_id}",
            at=self.clock.now(),
            events=(opened, rules.unopened(why)),
            trace=traceparent(),
        )
        subject = self.ports.stack.episode(opened.episode_id)
        return await append_first(self.ports.log, subject, commit)

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

    async def _change(
        self, key: str, hold: Hold | None, entry: BucketEntry | None, *, was: Hold | None
    ) -> bool:
        """Store a hold; return False if another node has changed the key since `entry`."""
        if hold == was:
            return True
        gates, revision = self.ports.gates, entry.revision if entry else 0
        try:
            if hold is not None:
                # guard: overlap-one-cause-first
                await gates.put(key, msgspec.json.encode(hold), after=revision)
            else:
                await gates.delete(key, after=revision)
        except RevisionConflict:
            return False
        return True

    def _key(self, opened: EpisodeOpened) -> str:
        return overlap_key(opened.actor_id, opened.expectation_id, opened.trigger.entity_id)
