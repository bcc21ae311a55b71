"""Calls nodes to episodes that were forgotten: look → rule → call. A person sends it out.

Whoever asks names candidates, from wherever they know them; what is true is looked up here,
on the journal, in the queue and in the claims.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from engine import sweep
from engine.blocking import ATTEND, block_in, next_wake
from engine.episode import fold
from engine.sweep import Verdict
from streams.clock import Clock
from streams.errors import UnreadableEvent
from streams.keys import episode_claim, wait_key
from streams.log import Recorded
from streams.ports import Ports

IN_FLIGHT_MAX: Final = 32
"""Episodes looked at at a time."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that may have been forgotten."""

    actor_id: str
    episode_id: str


@dataclass(frozen=True)
class Sweeper:
    """Sweeps for one person."""

    ports: Ports
    clock: Clock
    name: str
    """Holds a claim for the moment that it takes to see whether anyone has it."""
    stale_after_s: float
    is_dry: bool = False
    """Only look: call nobody."""

    async def sweep(self, candidates: Iterable[Candidate]) -> Sequence[Verdict]:
        """Return what there was to do about each of `candidates`, done unless `is_dry`.

        Raises:
            Unavailable: the log is away. Sweep again: whoever was called is not called twice.
        """
        room = asyncio.Semaphore(IN_FLIGHT_MAX)

        async def one(candidate: Candidate) -> Verdict:
            async with room:
                return await self._look_at(candidate)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(candidate)) for candidate in candidates]
        return [task.result() for task in tasks]

    async def _look_at(self, candidate: Candidate) -> Verdict:
        try:
            records = await self.ports.log.read(self.ports.stack.episode(candidate.episode_id))
        except UnreadableEvent:
            return Verdict.UNREADABLE
        episode = fold(records)
        verdict = sweep.judge(
            episode, silent_s=self._silent_s(records), stale_after_s=self.stale_after_s
        )
        if verdict is Verdict.WAITING and not await self._is_forgotten(records, candidate):
            return verdict
        if verdict not in (Verdict.WAITING, Verdict.RECOVERED):
            return verdict
        if await self.ports.inbox.is_waiting(candidate.actor_id, candidate.episode_id):
            return Verdict.CALLED
        if await self._is_held(candidate):
            return Verdict.HELD
        if not self.is_dry:
            # The journal has not moved since; should another sweep see the same, one call is kept.
            call_id = f"sweep.{candidate.episode_id}.{records[-1].seq}"
            await self.ports.inbox.send(sweep.call_for(episode), id=call_id)
        return Verdict.RECOVERED

    async def _is_forgotten(self, records: Sequence[Recorded], candidate: Candidate) -> bool:
        """Return whether nothing would call a node back to an episode that waits."""
        ports, actor, id_ = self.ports, candidate.actor_id, candidate.episode_id
        block = block_in(records[-1])
        if block is not None and block.ref:
            entry = await ports.registry.get(wait_key(block.ref, id_, block.step_no))
            if entry is None:
                return True
        if block is not None and next_wake(block, after=self.clock.now()) is None:
            return False
        return await ports.timers.pending(actor, ATTEND, id_) is None

    def _silent_s(self, records: Sequence[Recorded]) -> float:
        if not records:
            return 0.0
        return (self.clock.now() - records[-1].commit.at).total_seconds()

    async def _is_held(self, candidate: Candidate) -> bool:
        """Return whether some node has the claim: then nobody else can take it."""
        key = episode_claim(candidate.actor_id, candidate.episode_id)
        # Should we end in between, it lapses, and that calls for recovery by itself.
        lease = await self.ports.leases.acquire(key, holder=self.name)
        if lease is None:
            return True
        await self.ports.leases.complete(lease)
        return False
