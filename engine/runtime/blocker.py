"""Sees to an episode that is blocked: that it is found, woken in time, told of, in nobody's way.

None of it is a commit, and all of it may be done again by anybody: whoever blocked the episode does
it while they have the claim, and whoever is called because they died does it once more.

What is armed and indexed is for what the episode waits for as the journal's leader knows it. A node
that was slow may do so for a wait that is over by then. So it leaves the timer of a faster one
alone, unless its own is the sooner, and looks afterwards whether the episode has moved; if so, it
does all of it anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from engine import placing, publicity
from engine.answering import waits_of
from engine.blocking import ATTEND, Blocked, block_in, next_wake, reminder_due
from engine.resolving import WaitEntry
from engine.runtime.attendance import call_by
from engine.runtime.crew import Crew
from engine.runtime.herald import Herald
from engine.runtime.waiters import bring, missed
from streams.errors import Unavailable
from streams.events import EpisodeBlocked, EpisodeOpened, EpisodeResolved
from streams.keys import wait_key
from streams.log import Recorded

LOOKS_MAX: Final = 16
"""Most times that an episode is found to have moved while it was seen to."""

RETOLD_S: Final = 120.0
"""How soon after it was blocked an episode that is answered is told of as blocked once more, in
seconds: its node may have died before it told. The stream keeps one of the same id for as long;
after that, recovery has told it."""


@dataclass(frozen=True)
class Blocker:
    """Sees to the blocked episodes of one actor, on one node."""

    crew: Crew

    async def settle(self, opened: EpisodeOpened) -> None:
        """Do all that follows a block, if the episode still waits.

        Raises:
            Unavailable: the log is away. Some of it may not be done; do it again.
        """
        newest = await self.crew.ports.log.last(self._subject(opened))
        block = block_in(newest)
        if block is None or newest is None:
            return
        await self.watch(opened, after=block.at)
        await self._tell(opened, publicity.blocked(opened, block, seq=newest.seq))
        await self.leave_lane(opened, block)

    async def watch(self, opened: EpisodeOpened, *, after: datetime) -> None:
        """Have a node attend the episode when something is due next, and word from outside find it.

        Args:
            opened: the episode's.
            after: what was due by then has been done.

        Raises:
            Unavailable: the log is away, or the episode moves again and again. Do it again.
        """
        subject, done = self._subject(opened), None
        for _ in range(LOOKS_MAX):
            block = block_in(await self.crew.ports.log.last(subject))
            if block == done:
                return
            if done is not None:
                await self.forget_wait(opened, done.event)
            if block is None:
                return
            await self._arm(opened, block, after=after)
            await self._listen(opened, block)
            done = block
        raise Unavailable(subject, detail=f"it moved {LOOKS_MAX} times while it was seen to")

    async def remind(
        self, opened: EpisodeOpened, block: Blocked, *, at: datetime, seq: int
    ) -> None:
        """Remind people of what the episode waits for, if that is due at `at`.

        Raises:
            Unavailable: remind them again later.
        """
        number = reminder_due(block, at=at)
        if number:
            await self._tell(opened, publicity.reminder(opened, block, number=number, seq=seq))

    async def leave_lane(self, opened: EpisodeOpened, block: Blocked) -> None:
        """Let others have the episode's turn, where turns are taken, for as long as it waits.

        Raises:
            Unavailable: say it again.
        """
        if self.crew.is_laned:
            left = placing.left_for_now(opened.actor_id, opened.episode_id)
            id_ = f"left.{opened.episode_id}.{block.step_no}"
            await self.crew.ports.timers.send(left, id=id_)

    async def forget(self, opened: EpisodeOpened, block: EpisodeBlocked) -> None:
        """Have nobody look after what the episode has waited for: it ended instead.

        Raises:
            Unavailable: forget it again.
        """
        await self.forget_wait(opened, block)
        await self.crew.ports.timers.cancel(opened.actor_id, ATTEND, opened.episode_id)

    async def forget_wait(self, opened: EpisodeOpened, block: EpisodeBlocked) -> None:
        """Have word from outside find the episode no more, by what it has waited for.

        Raises:
            Unavailable: forget it again.
        """
        if block.wait is not None:
            key = wait_key(block.wait.ref, opened.episode_id, block.step_no)
            await self.crew.ports.registry.delete(key)

    async def tell_answer(self, opened: EpisodeOpened, records: Sequence[Recorded]) -> None:
        """Tell the world that the episode has its answer, and let word find it no more.

        Args:
            opened: the episode's.
            records: its journal, of which the answer is the newest.

        Raises:
            Unavailable: tell it again.
        """
        wait, seq = waits_of(records)[-1], records[-1].seq
        assert isinstance(wait.end, EpisodeResolved), "a wait that was answered"
        await self.forget_wait(opened, wait.blocked.event)
        if wait.lasted_s < RETOLD_S:
            await self._tell(opened, publicity.blocked(opened, wait.blocked, seq=wait.seq))
        await self._tell(opened, publicity.resumed(opened, wait.end, seq=seq))

    async def _arm(self, opened: EpisodeOpened, block: Blocked, *, after: datetime) -> None:
        wake = next_wake(block, after=after)
        if wake is not None:
            await call_by(self.crew.ports, opened, wake)

    async def _listen(self, opened: EpisodeOpened, block: Blocked) -> None:
        """Have word from outside find the episode, and fetch what was given before it could."""
        if not block.ref:
            return
        key = wait_key(block.ref, opened.episode_id, block.step_no)
        entry = WaitEntry(actor_id=opened.actor_id, episode_id=opened.episode_id, ref=block.ref)
        await self.crew.ports.registry.put(key, msgspec.json.encode(entry))
        said = await missed(self.crew.ports, block.ref, since=block.at)
        if said is not None:
            await bring(self.crew.ports, said, [entry])

    async def _tell(self, opened: EpisodeOpened, event: publicity.PublicEvent) -> None:
        if publicity.is_public(opened):
            await Herald(self.crew.ports.world).tell([event])

    def _subject(self, opened: EpisodeOpened) -> str:
        return self.crew.ports.stack.episode(opened.episode_id)
