"""Calls nodes to what the lease of a node stood for when it ended.

A start says under which lease of its node it was made, so a stream tells which episodes had no
claim of their own when that ended. Whoever leads keeps them in mind until they end or wait, or have
a claim; the position of the reactor says from where the next leader has to read for those that are
left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog

from engine.episodes.episode import RUNS, Status, fold
from engine.reactor.covered import CoveredAttempt, CoveredEpisodes, NodeLeaseRef
from engine.runtime.gather import gather_bounded
from engine.runtime.leases import LeaseEvents, stands
from engine.runtime.node_lease import GROWN_S
from engine.runtime.store import read_up_to
from engine.runtime.tasks import wait_first
from streams.clock import Clock
from streams.errors import Unavailable
from streams.keys import NODE_CLAIMS, episode_claim, node_claim
from streams.layout import Stream
from streams.model.commands import Recover
from streams.model.events import EpisodeOpened
from streams.ports.all import Ports
from streams.ports.log import Recorded

LOOK_S: Final = 2 * GROWN_S
"""Between two looks at the leases, in seconds, if nobody says that one has ended; what is older by
then has a claim of its own."""

RETRY_S: Final = 0.5
"""Wait before another look after one that failed, in seconds."""

IN_FLIGHT_MAX: Final = 64
"""Episodes that are looked at together."""

PAGE_MAX: Final = 1_000
"""Commits of one read."""

log = structlog.get_logger("vigil.takeover")


@dataclass
class CoverWatcher:
    """Watches over the episodes of one stream, while its node leads."""

    ports: Ports
    clock: Clock
    freed: LeaseEvents
    covered: CoveredEpisodes = field(default_factory=CoveredEpisodes)
    _standing: frozenset[NodeLeaseRef] = frozenset()
    """The leases that stood at the last look."""
    _is_new: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be another one."""

    async def read(self, stream: Stream, partition: int, *, first: int, up_to: int) -> None:
        """Take note of the commits from `first` up to `up_to`, which others have followed."""
        after = first - 1
        while first and after < up_to:
            page = await self.ports.log.page(
                stream, after=after, up_to=up_to, most=PAGE_MAX, partition=partition
            )
            if not page:
                return
            self.note(page)
            after = page[-1].seq

    def note(self, records: Iterable[Recorded]) -> None:
        """Take note of commits, in their order."""
        now_s = self.clock.monotonic_s()
        for each in records:
            lease = self.covered.note(each, at_s=now_s)
            if lease is not None and lease not in self._standing:
                self._is_new.set()

    async def watch(self) -> None:
        """Look at the leases for ever: when one may have ended or is new, and now and then."""
        while True:
            gone = self.freed.of(NODE_CLAIMS)
            self._is_new.clear()
            try:
                await self.look()
            except Unavailable as error:
                log.debug("the leases of nodes are not known", error=str(error))
                await self.clock.sleep(RETRY_S)
            else:
                await wait_first(gone.wait(), self._is_new.wait(), self.clock.sleep(LOOK_S))

    async def look(self) -> None:
        """Call a node to each episode whose node has lost its lease; forget what has a claim."""
        leases = sorted(self.covered.leases)
        found = await gather_bounded(self._stands, leases, in_flight_max=IN_FLIGHT_MAX)
        ended = [lease for lease, lasts in zip(leases, found, strict=True) if not lasts]
        self._standing = frozenset(leases) - frozenset(ended)
        for lease in ended:
            left = self.covered.under(lease)
            await gather_bounded(self._call, left, in_flight_max=IN_FLIGHT_MAX)
        old = self.covered.seen_before(self.clock.monotonic_s() - LOOK_S)
        await gather_bounded(self._forget_claimed, old, in_flight_max=IN_FLIGHT_MAX)

    async def _stands(self, lease: NodeLeaseRef) -> bool:
        return await stands(self.ports.leases, node_claim(lease.node), since=lease.since)

    async def _call(self, covered: CoveredAttempt) -> None:
        """Call a node to an episode that nobody sees to."""
        opened = await self._unclaimed(covered)
        if opened is not None:
            actor_id, episode_id = opened.actor_id, opened.episode_id
            node = covered.lease.node
            log.warning(
                "lease lapsed; calling for recovery",
                actor=actor_id,
                episode_id=episode_id,
                node=node,
            )
            recover = Recover(actor_id=actor_id, episode_id=episode_id, reason="lapsed")
            id_ = f"leave.{episode_id}.{covered.attempt}"  # As a node that stops calls for it.
            await self.ports.commands.send(recover, id=id_)
        self.covered.forget([covered])

    async def _forget_claimed(self, covered: CoveredAttempt) -> None:
        if await self._unclaimed(covered) is None:
            self.covered.forget([covered])

    async def _unclaimed(self, covered: CoveredAttempt) -> EpisodeOpened | None:
        """Return the opening of an episode that is at this attempt, and has no claim of its own.

        A claim that was made is noticed when it lapses. What lapsed before the attempt is none.
        """
        episode = fold(await read_up_to(self.ports.log, self.clock, covered.start))
        # A node that had recorded that it left may have died before it called another one.
        goes_on = episode.status in {*RUNS, Status.QUEUED}  # guard: left-episode-called-for
        is_at_it = goes_on and episode.attempts == covered.attempt
        opened = episode.opened
        if opened is None or not is_at_it:
            return None
        key = episode_claim(opened.actor_id, opened.episode_id)
        standing = await self.ports.leases.standing(key)
        # guard: older-lapse-no-claim
        is_claimed = standing is not None and standing.revision > episode.claim_revision
        return None if is_claimed else opened
