"""Brings a dispatcher what it has to decide on: events in order, and what is due: rule → settle.

Events are ruled on in the order of their stream. What the cluster remembers is looked up for many
at a time, but one after the other for the same expectation and subject, so that of two events the
first has the cooldown.

After a takeover, events come that may have been ruled on before: up to the end of the stream they
count as repeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from engine import placing, telemetry
from engine.runtime.alarms import Alarms
from engine.runtime.arbiter import Arbiter
from engine.runtime.gate import STRANGE_DELIVERIES_MAX, leave
from engine.runtime.intake import taking
from engine.runtime.mailbox import Asked, Cause, Item, Mailbox
from engine.runtime.parts import Gated, Part
from engine.runtime.tracks import Track
from engine.runtime.undertaker import Undertaker
from engine.trigger import entity_id
from streams.delivery import Delivery, Unreadable
from streams.events import EpisodeOpened
from streams.timers import Due
from streams.tracing import context_of, traceparent
from streams.world import Followed

READ_MAX: Final = 256
"""Events read in one go."""

WAIT_S: Final = 5.0
"""Longest silent wait for events or due messages; only how often an idle collector looks up."""

SETTLING_MAX: Final = 64
"""Subjects whose events are settled at a time."""

RESTING_S: Final = 5.0
"""How long a due message waits that is for others, or for a time when the actor may be woken."""

log = structlog.get_logger("vigil.dispatcher")


@dataclass
class Collector:
    """Brings what one actor's dispatcher needs to know, for one stint."""

    arbiter: Arbiter
    undertaker: Undertaker
    mailbox: Mailbox
    over: asyncio.Event
    """Set at the end of the stint."""
    takes_causes: bool
    """Whether the actor may be woken. What has been woken goes on in any case."""

    def __post_init__(self) -> None:
        self._crew = self.arbiter.crew
        self._alarms = Alarms(self.arbiter)

    async def follow(self, track: Track) -> None:
        """Bring the events of `track`, for ever.

        Raises:
            Unavailable: the log is away. Follow it anew from what is committed.
            Incompatible: the stream cannot be followed.
        """
        is_repeat = True
        labels = {"actor": self._crew.actor.id, "queue": track.queue}
        async with track.follow(track.after) as follower:
            while True:
                room = min(await self.mailbox.wait_room(), READ_MAX)
                batch = await follower.receive(most=room, wait_s=WAIT_S)
                new = [each for each in batch if not track.is_past(each)]
                self.mailbox.put(await self._rule_on(new, track, is_repeat=is_repeat))
                telemetry.backlog.set(follower.pending, labels)
                is_repeat = is_repeat and follower.pending > 0

    async def take_due(self) -> None:
        """Bring what comes due, until the stint is over.

        Raises:
            Unavailable: the queue could not be opened, or the log is away.
        """
        crew, room = self._crew, self.mailbox.due_room
        labels = {"actor": crew.actor.id, "queue": "due"}
        async with taking(crew.ports.timers.open(crew.actor.id), stopping=self.over) as source:
            if self.takes_causes:
                await self._alarms.ticker.ensure()
            while not self.over.is_set():
                free = await room.wait_free()
                deliveries = await source.receive(room=free, wait_s=WAIT_S)
                items = await asyncio.gather(*(self._look_at(each) for each in deliveries))
                kept = [item for item in items if item is not None]
                for _ in kept:
                    room.try_take()
                self.mailbox.put(kept)
                telemetry.backlog.set(source.pending, labels)

    async def _rule_on(
        self, batch: Sequence[Followed], track: Track, *, is_repeat: bool
    ) -> list[Item]:
        parts = [await self._parts(each, is_repeat=is_repeat) for each in batch]
        settled = await self._settle_all(parts)
        items: list[Item] = []
        for followed, outcomes in zip(batch, settled, strict=True):
            asked = await self._asked(
                outcomes,
                cause=followed.content,
                seq=followed.seq,
                is_repeat=is_repeat,
                trace=followed.trace,
            )
            items.append(Item(cursors=track.cursors_at(followed.seq), asked=asked))
        return items

    async def _parts(self, followed: Followed, *, is_repeat: bool) -> Sequence[Part]:
        if isinstance(followed.content, Unreadable):
            return [followed.content]
        return await self.arbiter.rule(followed.content, is_repeat=is_repeat)

    async def _settle_all(
        self, parts: Sequence[Sequence[Part]]
    ) -> list[list[EpisodeOpened | Unreadable | None]]:
        """Return what each part comes to. Parts about the same subject are settled in order."""
        outcomes: list[list[EpisodeOpened | Unreadable | None]] = [
            [None] * len(each) for each in parts
        ]
        chains: dict[tuple[str, str], list[Callable[[], Awaitable[None]]]] = {}
        for row, each in enumerate(parts):
            for column, part in enumerate(each):

                async def settle(row: int = row, column: int = column, part: Part = part) -> None:
                    outcomes[row][column] = await self.arbiter.settle(part)

                if isinstance(part, Gated):
                    chains.setdefault(_subject_of(part), []).append(settle)
                else:
                    await settle()
        await self._work_off(list(chains.values()))
        return outcomes

    async def _work_off(self, chains: Sequence[Sequence[Callable[[], Awaitable[None]]]]) -> None:
        room = asyncio.Semaphore(SETTLING_MAX)

        async def one(chain: Sequence[Callable[[], Awaitable[None]]]) -> None:
            async with room:
                for link in chain:
                    await link()

        await asyncio.gather(*(one(chain) for chain in chains))

    async def _asked(
        self,
        outcomes: Sequence[EpisodeOpened | Unreadable | None],
        *,
        cause: Cause | Unreadable,
        seq: int,
        is_repeat: bool,
        trace: str,
    ) -> list[Asked]:
        """Return the episodes among `outcomes`; what is unreadable is buried."""
        asked: list[Asked] = []
        for outcome in outcomes:
            if isinstance(outcome, Unreadable):
                await self.undertaker.bury(outcome, actor_id=self._crew.actor.id)
            elif outcome is not None and not isinstance(cause, Unreadable):
                expectation = self._crew.actor.expectations[outcome.expectation_id]
                with telemetry.span("gate", context_of(trace)):
                    ours = traceparent()
                asked.append(
                    Asked(
                        opened=outcome,
                        wanted=placing.wanted_of(outcome, expectation),
                        cause=cause,
                        seq=seq,
                        trace=ours,
                        is_repeat=is_repeat,
                    )
                )
        return asked

    async def _look_at(self, delivery: Delivery[Due | Unreadable]) -> Item | None:
        """Return what a due message comes to; None if it was handed back."""
        due = delivery.content
        match due:
            case Due(purpose=placing.LEFT):
                return Item(left=due.key, delivery=delivery)
            case Due(purpose=placing.PLACE):
                return Item(placed=due.key, delivery=delivery)
            case Due() if not self.takes_causes:
                return await delivery.nak(delay_s=RESTING_S)
        parts = await self._due_parts(due, delivery)
        if parts is None:
            return await leave(delivery)
        (outcomes,) = await self._settle_all([parts])
        asked = await self._asked(
            outcomes,
            cause=due,
            seq=delivery.seq,
            is_repeat=delivery.deliveries > 1,
            trace=delivery.trace,
        )
        return Item(asked=asked, delivery=delivery)

    async def _due_parts(
        self, due: Due | Unreadable, delivery: Delivery[Due | Unreadable]
    ) -> Sequence[Part] | None:
        """Return the parts of a due message; None: it is left to others."""
        if isinstance(due, Unreadable):
            return [due]
        parts = await self._alarms.parts(due, delivery)
        if parts is not None or delivery.deliveries < STRANGE_DELIVERIES_MAX:
            return parts
        letter = self._alarms.forgotten(due, delivery)
        return [] if letter is None else [letter]


def _subject_of(part: Gated) -> tuple[str, str]:
    expectation = part.expectation
    return expectation.name, entity_id(part.event.payload, expectation.subject_key)
